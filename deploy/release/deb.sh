#!/usr/bin/env bash
# Makes the Debian package of a static binary: deploy/release/deb.sh BINARY FOLDER writes FOLDER/tollkeeper_VERSION_ARCHITECTURE.deb.
# The binary must run on this machine, which makes the manual pages with it.
set -euo pipefail
binary=$(realpath "${1:?"name the binary"}")
folder=$(realpath "${2:?"name the folder to write to"}")
cd "$(dirname "$0")/../.."

version=$("$binary" --version | cut -d ' ' -f 2)
architecture=$(dpkg --print-architecture)
root=$(mktemp -d)
trap 'rm -r "$root"' EXIT
chmod 755 "$root"

extras="$root/extras"
deploy/release/extras.sh "$binary" "$extras"
install -D -m 755 "$binary" "$root/usr/bin/tollkeeper"
install -D -m 644 deploy/debian/rules.yaml "$root/etc/tollkeeper/rules.yaml"
install -D -m 644 "$extras/completions/tollkeeper.bash" "$root/usr/share/bash-completion/completions/tollkeeper"
install -D -m 644 "$extras/completions/_tollkeeper" "$root/usr/share/zsh/vendor-completions/_tollkeeper"
install -D -m 644 "$extras/completions/tollkeeper.fish" "$root/usr/share/fish/vendor_completions.d/tollkeeper.fish"
for page in "$extras"/man/*.1; do
    install -D -m 644 "$page" "$root/usr/share/man/man1/$(basename "$page")"
done
gzip -9n "$root"/usr/share/man/man1/*.1
rm -r "$extras"
# The unit of deploy/, for a program in /usr/bin. Its comments say how to install it by hand.
mkdir -p "$root/lib/systemd/system"
sed -e '/^#.*\(cargo build\|systemctl enable\)/d' -e 's|/usr/local/bin/|/usr/bin/|' deploy/systemd/tollkeeper.service \
    >"$root/lib/systemd/system/tollkeeper.service"
install -D -m 644 deploy/debian/copyright "$root/usr/share/doc/tollkeeper/copyright"
install -D -m 644 CHANGELOG.md "$root/usr/share/doc/tollkeeper/changelog"
gzip -9n "$root/usr/share/doc/tollkeeper/changelog"

install -d "$root/DEBIAN"
for script in postinst prerm postrm; do
    install -m 755 "deploy/debian/$script" "$root/DEBIAN/$script"
done
echo /etc/tollkeeper/rules.yaml >"$root/DEBIAN/conffiles"
sed -e "s/@VERSION@/$version/" -e "s/@ARCHITECTURE@/$architecture/" \
    -e "s/@SIZE@/$(du -sk --exclude=DEBIAN "$root" | cut -f 1)/" deploy/debian/control >"$root/DEBIAN/control"
(cd "$root" && find . -type f ! -path './DEBIAN/*' -printf '%P\0' | sort -z | xargs -0 md5sum >DEBIAN/md5sums)
dpkg-deb --root-owner-group -Zxz --build "$root" "$folder/tollkeeper_${version}_$architecture.deb"
