"""The programs that are compared, from registries only: Cargo, Go modules, PyPI and Debian. What cannot be had is named with the reason."""

import json
import os
import pathlib
import shutil
import subprocess
import sys

THROTTLECRAB = "0.4.40"
RATELIMIT = "v1.4.1-0.20260122083618-3fb702589d36"
GUBERNATOR = "v2.13.0"
GUBERNATOR_SUM = "h1:kvY3ppEpKBnUCKGLXBXO9QT/HQTpQVTwLzpQe6asOu0="
REDIS_CELL = "0.2.2"
LIMITADOR = "0.14"

HERE = pathlib.Path(__file__).resolve().parent


class Peers:
    """Paths of programs by name. `missing` says why one is not there."""

    def __init__(self, folder, offline=False):
        self.folder, self.offline = pathlib.Path(folder).resolve(), offline
        self.paths, self.missing = {}, {}
        (self.folder / "bin").mkdir(parents=True, exist_ok=True)

    def gather(self):
        self._own()
        self._cargo("throttlecrab-server", THROTTLECRAB)
        self._go("ratelimit", "github.com/envoyproxy/ratelimit/src/service_cmd", RATELIMIT, "service_cmd")
        self._gubernator()
        self._redis_cell()
        self._debian("nginx")
        self._debian("haproxy")
        self._debian("redis-server")
        self._envoy()
        return self

    def _own(self):
        """The do-nothing servers, limitador behind axum and tonic, and the load."""
        target = self.folder / "services"
        command = ["cargo", "build", "--release", "--quiet", "--locked", "--manifest-path", HERE / "Cargo.toml", "--target-dir", target]
        self._run("the servers that do nothing", command, 1200)
        for name in ("floor", "load", "limitador"):
            self._found(name, target / "release" / name)

    def _cargo(self, name, version):
        program = self.folder / "bin" / name
        if not program.exists() and not self.offline:
            command = ["cargo", "install", "--quiet", "--locked", name, "--version", version, "--root", self.folder,
                       "--target-dir", self.folder / "cargo-install"]
            self._run(name, command, 1200)
            shutil.rmtree(self.folder / "cargo-install", ignore_errors=True)
        self._found(name, program)

    def _go(self, name, package, version, built):
        program = self.folder / "bin" / name
        if not program.exists():
            if not shutil.which("go"):
                self.missing[name] = "needs Go"
                return
            environment = {**os.environ, "GOBIN": str(self.folder / "go"), "GOFLAGS": "-mod=mod"}
            self._run(name, ["go", "install", f"{package}@{version}"], 900, environment)
            if (self.folder / "go" / built).exists():
                shutil.move(self.folder / "go" / built, program)
        self._found(name, program)

    def _gubernator(self):
        """`go install` does not take it: the checksum database does not know it. So its checksum is here, and those of all that it
        needs are in its own go.sum."""
        name, module = "gubernator", f"github.com/gubernator-io/gubernator/v2@{GUBERNATOR}"
        program = self.folder / "bin" / name
        if not program.exists() and not self.offline:
            if not shutil.which("go"):
                self.missing[name] = "needs Go"
                return
            environment = {**os.environ, "GONOSUMDB": "github.com/gubernator-io/gubernator/*", "GOFLAGS": "-mod=readonly -buildvcs=false"}
            download = ["go", "mod", "download", "-json", module]
            downloaded = subprocess.run(download, capture_output=True, text=True, timeout=300, env=environment)
            source = json.loads(downloaded.stdout or "{}")
            if source.get("Sum") != GUBERNATOR_SUM:
                self.missing[name] = f"could not be downloaded: {source.get('Error') or 'its checksum is ' + str(source.get('Sum'))}"[:300]
                return
            self._run(name, ["go", "build", "-o", program, "./cmd/gubernator"], 900, environment, source["Dir"])
        self._found(name, program)

    def _redis_cell(self):
        """A module for Redis. Cargo unpacks the crate of the registry; it is no program, so `cargo install` does not take it."""
        module = self.folder / "bin" / "libredis_cell.so"
        if not module.exists() and not self.offline:
            holder = self.folder / "redis-cell"
            (holder / "src").mkdir(parents=True, exist_ok=True)
            (holder / "src" / "lib.rs").write_text("")
            (holder / "Cargo.toml").write_text(
                '[workspace]\n[package]\nname = "holder"\nversion = "0.0.0"\nedition = "2021"\n'
                f'[dependencies]\nredis-cell = "={REDIS_CELL}"\n'
            )
            self._run("redis-cell", ["cargo", "build", "--release", "--quiet", "--manifest-path", holder / "Cargo.toml"], 300)
            for built in sorted((holder / "target" / "release" / "deps").glob("libredis_cell*.so")):
                shutil.copy(built, module)
            shutil.rmtree(holder, ignore_errors=True)
        self._found("redis-cell", module)

    def _debian(self, name):
        path = os.environ["PATH"] + ":/usr/sbin:/usr/local/sbin"
        found = shutil.which(name, path=path)
        if found:
            self.paths[name] = found
        else:
            self.missing[name] = f"not installed; ./run setup installs it from Debian"

    def _envoy(self):
        tools = HERE.parent.parent / "target" / "tools"
        found = next(iter(sorted(tools.glob("lib/python3*/site-packages/envoy/_bin/envoy"))), None)
        if found:
            self.paths["envoy"] = found
        else:
            self.missing["envoy"] = "not in target/tools; ./run setup installs it from PyPI"

    def _run(self, name, command, seconds, environment=None, folder=None):
        if self.offline:
            return
        print(f"building {name} ...", file=sys.stderr, flush=True)
        try:
            words = [str(word) for word in command]
            built = subprocess.run(words, capture_output=True, text=True, timeout=seconds, env=environment, cwd=folder)
        except subprocess.TimeoutExpired:
            self.missing[name] = f"did not build in {seconds} s"
            return
        if built.returncode != 0:
            lines = built.stderr.strip().splitlines() or ["no message"]
            # Cargo's first error, or the last line of Go's.
            line = next((line for line in lines if line.startswith("error")), lines[-1])
            self.missing[name] = f"does not build: {line.strip()[:300]}"

    def _found(self, name, path):
        if pathlib.Path(path).exists():
            self.paths[name] = str(path)
            self.missing.pop(name, None)
        else:
            self.missing.setdefault(name, "was not built")
