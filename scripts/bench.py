#!/usr/bin/env python3
"""Nexmark through Weir: events/s, events per CPU second, peak memory and state size of each query.

usage: bench.py WEIR-BINARY [--events 1000000] [--queries q0,q4] [--into sink|view] [--parallelism N]

Every query gets a server and data directory of its own, reads from the generator as fast as it can, commits each second, and
ends when the last event is committed. `psql` is needed, nothing else.
"""
import argparse
import sys
import time

from bench_server import Server

SOURCES = {
    "bid": "auction BIGINT, bidder BIGINT, price BIGINT, channel VARCHAR, url VARCHAR, date_time TIMESTAMP, extra VARCHAR",
    "auction": "id BIGINT, item_name VARCHAR, description VARCHAR, initial_bid BIGINT, reserve BIGINT, date_time TIMESTAMP, "
    "expires TIMESTAMP, seller BIGINT, category BIGINT, extra VARCHAR",
    "person": "id BIGINT, name VARCHAR, email_address VARCHAR, credit_card VARCHAR, city VARCHAR, state VARCHAR, "
    "date_time TIMESTAMP, extra VARCHAR",
}
# Events of each type in 50.
SHARE = {"person": 1, "auction": 3, "bid": 46}

DAY = "to_char(date_time, 'YYYY-MM-DD')"
RANKS = (
    "count(*) FILTER (WHERE price < 10000) AS rank1_bids, "
    "count(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bids, "
    "count(*) FILTER (WHERE price >= 1000000) AS rank3_bids"
)


def distinct(column):
    return (
        f"count(DISTINCT {column}) AS total_{column}s, "
        f"count(DISTINCT {column}) FILTER (WHERE price < 10000) AS rank1_{column}s, "
        f"count(DISTINCT {column}) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_{column}s, "
        f"count(DISTINCT {column}) FILTER (WHERE price >= 1000000) AS rank3_{column}s"
    )


HOP = "HOP(bid, date_time, INTERVAL '2' SECOND, INTERVAL '10' SECOND)"
# Query: the sources it reads (a source that is read twice is there twice; equal reads are one), and the SQL.
QUERIES = {
    "q0": (["bid"], "SELECT auction, bidder, price, date_time, extra FROM bid"),
    "q3": (
        ["auction", "person"],
        "SELECT p.name, p.city, p.state, a.id FROM auction a JOIN person p ON a.seller = p.id "
        "WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')",
    ),
    "q4": (
        ["auction", "bid"],
        "SELECT category, avg(final) AS avg_final FROM (SELECT max(b.price) AS final, a.category FROM auction a JOIN bid b "
        "ON a.id = b.auction AND b.date_time BETWEEN a.date_time AND a.expires GROUP BY a.id, a.category) q GROUP BY category",
    ),
    "q5": (
        ["bid"],
        "SELECT ab.auction, ab.num FROM (SELECT auction, count(*) AS num, window_start AS start_a FROM "
        f"{HOP} GROUP BY auction, window_start) ab JOIN (SELECT max(num) AS maxn, start_c FROM (SELECT count(*) AS num, "
        f"window_start AS start_c FROM {HOP} GROUP BY auction, window_start) cb GROUP BY start_c) mb "
        "ON ab.start_a = mb.start_c AND ab.num >= mb.maxn",
    ),
    "q7": (
        ["bid", "bid"],
        "SELECT b.auction, b.price, b.bidder, b.date_time FROM bid b JOIN (SELECT max(price) AS maxprice, window_end FROM "
        "TUMBLE(bid, date_time, INTERVAL '10' SECOND) GROUP BY window_end) m ON b.price = m.maxprice "
        "WHERE b.date_time BETWEEN m.window_end - INTERVAL '10' SECOND AND m.window_end",
    ),
    "q8": (
        ["person", "auction"],
        "SELECT p.id, p.name, p.starttime FROM (SELECT id, name, window_start AS starttime, window_end AS endtime FROM "
        "TUMBLE(person, date_time, INTERVAL '10' SECOND) GROUP BY id, name, window_start, window_end) p JOIN (SELECT seller, "
        "window_start AS starttime, window_end AS endtime FROM TUMBLE(auction, date_time, INTERVAL '10' SECOND) "
        "GROUP BY seller, window_start, window_end) a ON p.id = a.seller AND p.starttime = a.starttime AND p.endtime = a.endtime",
    ),
    "q9": (
        ["auction", "bid"],
        "SELECT id, item_name, description, initial_bid, reserve, date_time, expires, seller, category, extra, auction, bidder, "
        "price, bid_date_time FROM (SELECT a.id, a.item_name, a.description, a.initial_bid, a.reserve, a.date_time, a.expires, "
        "a.seller, a.category, a.extra, b.auction, b.bidder, b.price, b.date_time AS bid_date_time, row_number() OVER "
        "(PARTITION BY a.id ORDER BY b.price DESC, b.date_time) AS r FROM auction a JOIN bid b ON a.id = b.auction "
        "AND b.date_time BETWEEN a.date_time AND a.expires) q WHERE r <= 1",
    ),
    "q15": (["bid"], f"SELECT {DAY} AS day, count(*) AS total_bids, {RANKS}, {distinct('bidder')}, {distinct('auction')} "
            f"FROM bid GROUP BY {DAY}"),
    "q16": (["bid"], f"SELECT channel, {DAY} AS day, max(to_char(date_time, 'HH24:MI')) AS minute, count(*) AS total_bids, "
            f"{RANKS}, {distinct('bidder')}, {distinct('auction')} FROM bid GROUP BY channel, {DAY}"),
    "q17": (["bid"], f"SELECT auction, {DAY} AS day, count(*) AS total_bids, {RANKS}, min(price) AS min_price, "
            f"max(price) AS max_price, avg(price) AS avg_price, sum(price) AS sum_price FROM bid GROUP BY auction, {DAY}"),
    "q18": (["bid"], "SELECT auction, bidder, price, channel, url, date_time, extra FROM (SELECT *, row_number() OVER "
            "(PARTITION BY bidder, auction ORDER BY date_time DESC) AS r FROM bid) q WHERE r <= 1"),
    "q19": (["bid"], "SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY auction ORDER BY price DESC) AS r FROM bid) q "
            "WHERE r <= 10"),
    "q20": (
        ["auction", "bid"],
        "SELECT auction, bidder, price, channel, url, b.date_time AS bid_time, b.extra AS bid_extra, item_name, description, "
        "initial_bid, reserve, a.date_time AS auction_time, expires, seller, category, a.extra AS auction_extra "
        "FROM bid b JOIN auction a ON b.auction = a.id WHERE a.category = 10",
    ),
}


def run(binary, name, events, into, parallelism, timeout_s):
    tables, query = QUERIES[name]
    server = Server(binary)
    try:
        for table in set(tables):
            server.sql(
                f"CREATE SOURCE {table} ({SOURCES[table]}) WITH (connector = 'nexmark', nexmark.table.type = '{table}', "
                f"nexmark.event.num = '{events}', nexmark.min.event.gap.in.ns = '0')"
            )
        expected = sum(events * SHARE[table] // 50 for table in tables)
        cpu, begun = server.cpu_s(), time.time()
        make = f"CREATE SINK out AS {query} WITH (connector = 'blackhole')" if into == "sink" else (
            f"CREATE MATERIALIZED VIEW out AS {query}")
        server.sql(f"SET background_ddl = true; SET streaming_parallelism = {parallelism}; {make}")
        while server.source_rows() < expected:
            if time.time() - begun > timeout_s:
                raise RuntimeError(f"not finished in {timeout_s} s: {server.source_rows()} of {expected} rows")
            if server.process.poll() is not None:
                raise RuntimeError("the server died: " + open(f"{server.dir}/log").read()[-2000:])
            time.sleep(0.05)
        server.sql("FLUSH")
        wall, cpu = time.time() - begun, server.cpu_s() - cpu
        print(f"{name:4} {into:4} {events:>9} {events / wall / 1000:>10.0f} {events / cpu / 1000:>12.0f} "
              f"{wall:>7.1f} {cpu:>7.1f} {server.status_mb('VmHWM'):>8} {server.state_mb():>8}", flush=True)
    finally:
        server.stop()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("--events", default="1000000,10000000")
    parser.add_argument("--queries", default=",".join(QUERIES))
    parser.add_argument("--into", default="sink,view")
    parser.add_argument("--parallelism", type=int, default=2)
    parser.add_argument("--timeout", type=int, default=600)
    arguments = parser.parse_args()
    print("query into    events  k events/s  k ev/CPU s  wall s   CPU s  peak MB state MB", flush=True)
    for events in map(int, arguments.events.split(",")):
        for name in arguments.queries.split(","):
            for into in arguments.into.split(","):
                try:
                    run(arguments.binary, name, events, into, arguments.parallelism, arguments.timeout)
                except RuntimeError as error:
                    print(f"{name:4} {into:4} {events:>9} failed: {error}", flush=True)


main()
