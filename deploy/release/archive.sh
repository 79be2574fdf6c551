#!/usr/bin/env bash
# Builds the program for this machine as it is shipped, starts it once, and makes an archive of it with completions, manual pages and an
# example configuration: deploy/release/archive.sh FOLDER writes FOLDER/tollkeeper and FOLDER/tollkeeper-VERSION-TARGET.tar.gz.
set -euo pipefail
cd "$(dirname "$0")/../.."
folder=${1:?"name the folder to write to"}
build="${CARGO_TARGET_DIR:-target}"

# On Linux static: with musl if its target is installed, otherwise with this machine's C library.
target=$(rustc -vV | sed -n 's/^host: //p')
flags=${RUSTFLAGS:-}
case "$target" in
    *-linux-*)
        musl=$(uname -m)-unknown-linux-musl
        if rustc --print target-libdir --target "$musl" 2>/dev/null | xargs -r test -d; then
            target=$musl
        else
            flags="$flags -C target-feature=+crt-static"
        fi
        ;;
esac
RUSTFLAGS="$flags" cargo build --profile dist --locked -p tollkeeper-server --target "$target"
binary="$build/$target/dist/tollkeeper"
if command -v ldd >/dev/null && ldd "$binary" 2>/dev/null | grep -q '=>'; then
    echo "$binary is not static" >&2
    exit 1
fi

deploy/release/starts.sh "$binary"

version=$("$binary" --version | cut -d ' ' -f 2)
name="tollkeeper-$version-$target"
mkdir -p "$folder"
contents=$(mktemp -d)
trap 'rm -r "$contents"' EXIT
mkdir -p "$contents/$name"
cp "$binary" LICENSE-APACHE LICENSE-MIT README.md CHANGELOG.md deploy/rules.yaml "$contents/$name"
deploy/release/extras.sh "$binary" "$contents/$name"
tar -C "$contents" -czf "$folder/$name.tar.gz" "$name"
cp "$binary" "$folder/tollkeeper"
echo "$target: $(wc -c <"$binary" | tr -d ' ') bytes, in an archive $(wc -c <"$folder/$name.tar.gz" | tr -d ' ')"
