"""One version and one oldest compiler everywhere: crates, wheel, npm packages, chart, manifests. No action of a workflow that
changes by itself. And no page that says that nothing is published yet once something is.

Without arguments reports what differs, with exit status 1; with --print prints the version.
"""

import json
import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def manifest(path: str) -> dict:
    return tomllib.loads((ROOT / path).read_text(encoding="utf-8"))


def found_versions() -> list[tuple[str, str]]:
    """Where a version stands, and which."""
    workspace = manifest("Cargo.toml")["workspace"]
    found = [("Cargo.toml", workspace["package"]["version"])]
    for name, dependency in workspace["dependencies"].items():
        if name.startswith("tollkeeper") and "version" in dependency:
            found.append((f"Cargo.toml, dependency {name}", dependency["version"]))
    # The wheel's version is that of its crate.
    found.append(("bindings/Cargo.toml", manifest("bindings/Cargo.toml")["workspace"]["package"]["version"]))
    package = json.loads((ROOT / "bindings/node/package.json").read_text(encoding="utf-8"))
    found.append(("bindings/node/package.json", package["version"]))
    for name, version in package["optionalDependencies"].items():
        found.append((f"bindings/node/package.json, {name}", version))
    for path in ["Cargo.lock", "bindings/Cargo.lock"]:
        for locked in manifest(path)["package"]:
            # Ours have no source.
            if locked["name"].startswith("tollkeeper") and "source" not in locked:
                found.append((f"{path}, {locked['name']}", locked["version"]))
    chart = (ROOT / "deploy/helm/tollkeeper/Chart.yaml").read_text(encoding="utf-8")
    for field in ["version", "appVersion"]:
        found.append((f"Chart.yaml, {field}", one(rf'^{field}: "?([^"\n]+)"?$', chart, "Chart.yaml")))
    deployment = (ROOT / "deploy/kubernetes/tollkeeper.yaml").read_text(encoding="utf-8")
    found.append(("deploy/kubernetes/tollkeeper.yaml", one(r"image: tollkeeper:(\S+)", deployment, "tollkeeper.yaml")))
    return found


def found_compilers() -> list[tuple[str, str]]:
    """Where the oldest supported compiler stands, and which."""
    found = []
    for path in ["Cargo.toml", "bindings/Cargo.toml"]:
        found.append((path, manifest(path)["workspace"]["package"]["rust-version"]))
    for path in [".github/workflows/ci.yml", ".github/workflows/release.yml", "deploy/docker/Dockerfile"]:
        text = (ROOT / path).read_text(encoding="utf-8")
        for compiler in re.findall(r"rust:(\d[\d.]*)-|toolchain install (\d[\d.]*)|default-toolchain (\d[\d.]*)|cargo \+(\d[\d.]*)", text):
            found.append((path, next(filter(None, compiler))))
    for path in ["README.md", "CONTRIBUTING.md", "docs/guide/install.md", "docs/guide/upgrade.md"]:
        for compiler in re.findall(r"Rust (\d+\.\d+)", (ROOT / path).read_text(encoding="utf-8")):
            found.append((path, compiler))
    return found


def loose_actions(text: str) -> list[str]:
    """Actions that are pinned neither by a commit nor by a full version."""
    return [action for action in re.findall(r"uses: (\S+)", text) if not re.search(r"@([0-9a-f]{40}|v\d+\.\d+\.\d+)$", action)]


def outdated_notes(changelog: str, pages: dict[str, str]) -> list[str]:
    """Pages that say how to do without a release, although the changelog no longer says that there is none."""
    newest = re.search(r"^## (.+)$", changelog, re.MULTILINE)[1]
    if "not published yet" in newest:
        return []
    notes = ["Until the first release", "From the first published release", "Nothing is published yet"]
    return [f"{path} says {note!r}, and CHANGELOG.md says that {newest} is published" for path, text in pages.items() for note in notes if note in text]


def one(pattern: str, text: str, path: str) -> str:
    found = re.findall(pattern, text, re.MULTILINE)
    if len(found) != 1:
        raise SystemExit(f"versions: {path} must have one match of {pattern}, and has {len(found)}")
    return found[0]


def differing(found: list[tuple[str, str]]) -> list[str]:
    """What is not as the first."""
    place, expected = found[0]
    return [f"{where} says {value}, and {place} says {expected}" for where, value in found[1:] if value != expected]


def main() -> None:
    versions = found_versions()
    if sys.argv[1:] == ["--print"]:
        print(versions[0][1])
        return
    problems = differing(versions) + differing(found_compilers())
    for path in sorted((ROOT / ".github/workflows").glob("*.yml")):
        problems += [f"{path.name}: {action} may change; pin it by its commit" for action in loose_actions(path.read_text(encoding="utf-8"))]
    pages = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]}
    problems += outdated_notes((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), pages)
    for problem in problems:
        print(f"versions: {problem}", file=sys.stderr)
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
