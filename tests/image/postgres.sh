#!/bin/sh
# Make the database of POSTGRES_USER, POSTGRES_DB and POSTGRES_PASSWORD_FILE at the first start, then serve it.
set -eu
if [ ! -s "$PGDATA/PG_VERSION" ]; then
    initdb --pgdata "$PGDATA" --username "$POSTGRES_USER" --pwfile "$POSTGRES_PASSWORD_FILE" \
        --auth-host scram-sha-256 --auth-local trust --no-sync
    echo "host all all all scram-sha-256" >>"$PGDATA/pg_hba.conf"
    echo "CREATE DATABASE \"$POSTGRES_DB\"" | postgres --single -D "$PGDATA" postgres >/dev/null
fi
exec postgres -D "$PGDATA" -c listen_addresses='*'
