# The archive: unpacked, and started.
set -euo pipefail
cd /tmp
(cd /artifacts && sha256sum -c --quiet SHA256SUMS)
tar -xzf /artifacts/tollkeeper-*.tar.gz
cd tollkeeper-*/
bash /release/starts.sh ./tollkeeper
bash /release/starts.sh ./tollkeeper --config rules.yaml --admin-token a-token-that-is-long-enough-for-this
test -s man/tollkeeper-serve.1
bash -n completions/tollkeeper.bash
