#!/bin/sh
# A Postgres on port 5432 with the role and database that the pages name, for the session of a page (console.py).
set -eu
folder=$(mktemp -d)
# It refuses to run as root.
if [ "$(id -u)" = 0 ]; then
    chown nobody "$folder"
    as="setpriv --reuid=nobody --regid=nogroup --clear-groups --"
else
    as=
fi
cd "$folder"
$as initdb -D "$folder/data" -U postgres -A trust -E UTF8 --locale=C.UTF-8 -N >/dev/null
$as postgres -D "$folder/data" -p 5432 -k "$folder" -c listen_addresses=127.0.0.1 -c fsync=off >"$folder/log" 2>&1 &
until psql -qXh 127.0.0.1 -U postgres -c "create role tollkeeper login password 'sesame'" 2>/dev/null; do sleep 0.1; done
psql -qXh 127.0.0.1 -U postgres -c "create database limits owner tollkeeper"
# It runs for as long as its server does.
wait
