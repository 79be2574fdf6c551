"""The Homebrew formula of a release, from its checksums: formula.py REPOSITORY SHA256SUMS > tollkeeper.rb

REPOSITORY is the address whose releases/download/vVERSION/ has the archives. Linux gets the binaries linked with musl where they are
there, which run on every distribution; a system without an archive is left out.
"""

import re
import sys

ARCHIVE = re.compile(r"^(?P<sum>[0-9a-f]{64})  (?P<file>tollkeeper-(?P<version>[0-9][^-]*)-(?P<target>.+)\.tar\.gz)$")

# The block of the formula, the processor, and the targets by preference.
SYSTEMS = [
    ("on_macos", "on_arm", ["aarch64-apple-darwin"]),
    ("on_macos", "on_intel", ["x86_64-apple-darwin"]),
    ("on_linux", "on_arm", ["aarch64-unknown-linux-musl", "aarch64-unknown-linux-gnu"]),
    ("on_linux", "on_intel", ["x86_64-unknown-linux-musl", "x86_64-unknown-linux-gnu"]),
]

HEAD = """class Tollkeeper < Formula
  desc "Exact rate limiting as a service: HTTP, Envoy, Redis protocol, reverse proxy"
  homepage "{repository}"
  version "{version}"
  license any_of: ["MIT", "Apache-2.0"]
"""

TAIL = """
  def install
    bin.install "tollkeeper"
    man1.install Dir["man/*.1"]
    bash_completion.install "completions/tollkeeper.bash" => "tollkeeper"
    zsh_completion.install "completions/_tollkeeper"
    fish_completion.install "completions/tollkeeper.fish"
    pkgetc.install "rules.yaml"
  end

  service do
    # The example listens on all addresses, for containers.
    run [opt_bin/"tollkeeper", "serve", "--config", etc/"tollkeeper/rules.yaml", "--http", "127.0.0.1:8080", "--grpc", "127.0.0.1:8081"]
    keep_alive true
  end

  test do
    output = shell_output("#{bin}/tollkeeper check --json user_id=42 plan=free")
    assert_match "\\"allowed\\":true", output.delete(" ")
  end
end
"""


def formula(repository: str, sums: str) -> str:
    archives = [found for line in sums.splitlines() if (found := ARCHIVE.match(line))]
    versions = {found["version"] for found in archives}
    if len(versions) != 1:
        raise SystemExit(f"formula: the checksums must have archives of one version, and have {sorted(versions) or 'none'}")
    (version,) = versions
    by_target = {found["target"]: found for found in archives}
    text = HEAD.format(repository=repository.rstrip("/"), version=version)
    for system in ("on_macos", "on_linux"):
        blocks = []
        for block, processor, targets in SYSTEMS:
            target = next((target for target in targets if target in by_target), None)
            if block == system and target:
                found = by_target[target]
                blocks.append(
                    f'    {processor} do\n      url "{repository.rstrip("/")}/releases/download/v{version}/{found["file"]}"\n'
                    f'      sha256 "{found["sum"]}"\n    end\n'
                )
        if blocks:
            text += f"\n  {system} do\n" + "".join(blocks) + "  end\n"
    return text + TAIL


if __name__ == "__main__":
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    with open(sys.argv[2], encoding="utf-8") as file:
        print(formula(sys.argv[1], file.read()), end="")
