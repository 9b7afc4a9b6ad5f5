#!/usr/bin/env python3
"""Weir at rest: how soon a change is seen, what idle views cost, how long a start takes.

usage: bench_rest.py WEIR-BINARY [--views 1000]
"""
import argparse
import statistics
import time

from bench_server import Server, Session


def latency(binary, inserts=300):
    """From the answer to an INSERT until another session sees the row through two views."""
    server = Server(binary)
    try:
        server.sql("CREATE TABLE t (k int PRIMARY KEY, v int)")
        server.sql("CREATE MATERIALIZED VIEW one AS SELECT k % 10 AS g, count(*) AS n, max(k) AS last FROM t GROUP BY k % 10")
        server.sql("CREATE MATERIALIZED VIEW two AS SELECT max(last) AS last FROM one")
        writer, reader = Session(server), Session(server)
        written, seen = [], []
        for k in range(inserts):
            begun = time.perf_counter()
            writer.run(f"INSERT INTO t VALUES ({k}, {k})")
            acknowledged = time.perf_counter()
            while reader.run("SELECT last FROM two") != [str(k)]:
                pass
            written.append(acknowledged - begun)
            seen.append(time.perf_counter() - acknowledged)
            time.sleep(0.02)
        for what, times in [("INSERT acknowledged", written), ("then seen through two views", seen)]:
            times.sort()
            print(f"{what}: median {statistics.median(times) * 1000:.1f} ms, 99 % {times[len(times) * 99 // 100] * 1000:.1f} ms")
    finally:
        server.stop()


def idle(binary, views, seconds=30):
    """CPU of many views over which nothing happens; and a start with them."""
    server = Server(binary)
    try:
        session = Session(server)
        session.run("CREATE TABLE t (k int PRIMARY KEY, v int)")
        session.run("INSERT INTO t SELECT i, i FROM generate_series(1, 1000) s (i)")
        begun = time.time()
        for i in range(views):
            session.run(f"CREATE MATERIALIZED VIEW v{i} AS SELECT v % {i + 1} AS g, count(*) AS n FROM t GROUP BY v % {i + 1}")
            if i + 1 == 100:
                print(f"100 views made in {time.time() - begun:.1f} s", flush=True)
                for how in (server.terminate, server.kill):
                    how()
                    starting = time.time()
                    server.start()
                    n = server.sql("SELECT sum(n) FROM v99")
                    print(f"start with 100 views after {how.__name__}: {time.time() - starting:.2f} s until the last one "
                          f"is read ({n} rows counted)", flush=True)
                session, begun = Session(server), time.time()
        print(f"{views} views made, the last {views - 100} in {time.time() - begun:.1f} s", flush=True)
        session.run("FLUSH")
        time.sleep(5)
        before = server.cpu_s()
        time.sleep(seconds)
        share = (server.cpu_s() - before) / seconds
        print(f"{views} idle views: {share * 100:.1f} % of a core, {server.status_mb('VmRSS')} MB", flush=True)
        begun = time.perf_counter()
        session.run("INSERT INTO t VALUES (0, 0)")
        session.run("; ".join(f"SELECT count(*) FROM v{i}" for i in range(0, views, 100)))
        print(f"one row through {views} views: {time.perf_counter() - begun:.2f} s", flush=True)
    finally:
        server.stop()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("--views", type=int, default=1000)
    arguments = parser.parse_args()
    latency(arguments.binary)
    idle(arguments.binary, arguments.views)


main()
