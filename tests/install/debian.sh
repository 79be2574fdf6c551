# The Debian package: installed, started as the unit starts it, configured, upgraded, removed and purged.
set -euo pipefail
dpkg -i /artifacts/tollkeeper_*.deb >/dev/null
test "$(command -v tollkeeper)" = /usr/bin/tollkeeper
tollkeeper validate /etc/tollkeeper/rules.yaml
bash /release/starts.sh tollkeeper --config /etc/tollkeeper/rules.yaml
# systemd does not run here; the unit names what was installed.
grep -q '^ExecStart=/usr/bin/tollkeeper serve --config /etc/tollkeeper/rules.yaml$' /lib/systemd/system/tollkeeper.service
test -s /usr/share/bash-completion/completions/tollkeeper
dpkg --verify tollkeeper
# A change of the administrator survives an upgrade.
echo '# mine' >>/etc/tollkeeper/rules.yaml
dpkg -i /artifacts/tollkeeper_*.deb >/dev/null
grep -q '^# mine' /etc/tollkeeper/rules.yaml
dpkg -r tollkeeper >/dev/null
test ! -e /usr/bin/tollkeeper
test -e /etc/tollkeeper/rules.yaml
dpkg -P tollkeeper >/dev/null
test ! -e /etc/tollkeeper
