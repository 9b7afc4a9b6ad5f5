"""How fast sinks are, and what they cost what feeds them. Ratios are within one run.

bench_sinks.py WEIR [--rows 4000000]
"""
import argparse
import time

from bench_server import Server

parser = argparse.ArgumentParser()
parser.add_argument("weir")
parser.add_argument("--rows", type=int, default=4_000_000)
options = parser.parse_args()
EVENTS = options.rows * 50 // 46
ROWS = EVENTS // 50 * 46

SOURCE = f"""CREATE SOURCE bids (auction BIGINT, bidder BIGINT, price BIGINT, channel VARCHAR, url VARCHAR,
    date_time TIMESTAMP, extra VARCHAR) WITH (connector = 'nexmark', nexmark.table.type = 'Bid',
    nexmark.event.num = '{EVENTS}', nexmark.min.event.gap.in.ns = '0', source_rate_limit = 0)"""
START = "ALTER SOURCE bids SET source_rate_limit = default"
BACKGROUND = "SET background_ddl = true"


def iceberg(server, name, more=""):
    return f"""WITH (connector = 'iceberg', warehouse.path = '{server.dir}/warehouse', catalog.type = 'sql',
        catalog.uri = 'sqlite:///{server.dir}/catalog.db', database.name = 'd', table.name = '{name}',
        create_table_if_not_exists = 'true', type = 'append-only', commit_interval = '5s' {more})"""


def measure(title, prepare, done):
    """Prepares, lets the source go, and waits until `done(server)`; rows per second."""
    server = Server(options.weir)
    server.sql(SOURCE)
    for statement in prepare(server):
        server.sql(f"{BACKGROUND}; {statement}")
    begun, cpu = time.time(), server.cpu_s()
    server.sql(START)
    while not done(server):
        time.sleep(0.05)
    seconds, cpu = time.time() - begun, server.cpu_s() - cpu
    peak = server.status_mb("VmHWM")
    print(f"{title:48} {ROWS / seconds:11,.0f} rows/s {ROWS / cpu:11,.0f} rows/CPU s, peak {peak:,} MB", flush=True)
    server.stop()
    return ROWS / seconds


def read(server):
    return server.source_rows() >= ROWS


def delivered(server):
    return server.sql("SELECT coalesce(sum(rows), 0) FROM weir_catalog.sinks") == str(ROWS)


def holds(relation, rows=ROWS, of="count(*)"):
    return lambda server: server.sql(f"SET read_your_writes = false; SELECT {of} FROM {relation}") == str(rows)


print(f"{ROWS:,} bids")
measure("Iceberg, append-only, zstd", lambda s: [f"CREATE SINK i FROM bids {iceberg(s, 'i')}"], delivered)
more = ", partition_by = 'bucket(1000, auction)'"
measure("Iceberg, 1,000 partitions", lambda s: [f"CREATE SINK i FROM bids {iceberg(s, 'i', more)}"], delivered)

VIEW = "CREATE MATERIALIZED VIEW m AS SELECT * FROM bids"
alone = measure("a view without a sink", lambda s: [VIEW], holds("m"))
blocked = measure(
    "a view with a blocked sink",
    lambda s: [VIEW, f"CREATE SINK i FROM m {iceberg(s, 'i', ', sink_rate_limit = 0')}"],
    holds("m"),
)
print(f"{'':48} {blocked / alone:11.0%} (goal: 85 %)")

QUERY = "SELECT auction, bidder, price, date_time FROM bids"
view = measure("a query as a view", lambda s: [f"CREATE MATERIALIZED VIEW m AS {QUERY}"], holds("m"))
target = "CREATE TABLE target (auction BIGINT, bidder BIGINT, price BIGINT, date_time TIMESTAMP)"
table = measure("the same into a table", lambda s: [target, f"CREATE SINK i INTO target AS {QUERY}"], holds("target"))
print(f"{'':48} {table / view:11.0%} (goal: 70 %)")

QUERY = "SELECT auction, count(*)::bigint AS n, sum(price)::bigint AS p FROM bids GROUP BY auction"
of = "sum(n)"
view = measure("grouped, as a view", lambda s: [f"CREATE MATERIALIZED VIEW m AS {QUERY}"], holds("m", of=of))
target = "CREATE TABLE target (auction BIGINT PRIMARY KEY, n BIGINT, p BIGINT)"
table = measure(
    "the same into a table with a key",
    lambda s: [target, f"CREATE SINK i INTO target AS {QUERY}"],
    holds("target", of=of),
)
print(f"{'':48} {table / view:11.0%} (goal: 70 %)")
