#!/usr/bin/env python3
"""Whether jobs hold each other back: backfill, isolation, recovery and rescaling, as ratios within one run.

usage: bench_jobs.py WEIR-BINARY [--scale 1.0]      1.0: 10 million rows to backfill, 5 GB of state
"""
import argparse
import statistics
import threading
import time

from bench_server import Server, Session


def percentile(times, share):
    times = sorted(times)
    return times[min(len(times) - 1, int(len(times) * share))] * 1000


def fill(session, table, rows, columns, step):
    for first in range(0, rows, step):
        last = min(rows, first + step) - 1
        session.run(f"INSERT INTO {table} SELECT {columns} FROM generate_series({first}, {last}) s (i)")


def progress(session, name):
    """Rows that the backfill of a view has read and committed; None when the view is created."""
    return int(session.run(f"SELECT coalesce(sum(rows), 0) FROM weir_catalog.backfill_progress WHERE job = '{name}'")[0])


def created(session, name):
    return session.run(f"SELECT created FROM weir_catalog.jobs WHERE name = '{name}'") == ["t"]


class Writer(threading.Thread):
    """Writes rows until it is stopped, and notes how long each statement took."""

    def __init__(self, server, statement, pause=0.0):
        super().__init__(daemon=True)
        self.session, self.statement, self.pause = Session(server), statement, pause
        self.times, self.ends, self.stopping = [], [], False
        self.start()

    def run(self):
        n = 0
        while not self.stopping:
            begun = time.perf_counter()
            self.session.run(self.statement(n))
            self.ends.append(time.perf_counter())
            self.times.append(self.ends[-1] - begun)
            n += 1
            time.sleep(self.pause)

    def stop(self):
        self.stopping = True
        self.join()
        return self


def backfill(binary, rows):
    server = Server(binary)
    try:
        session = Session(server)
        session.run("CREATE TABLE t (k bigint PRIMARY KEY, g int, v bigint)")
        session.run("CREATE TABLE u (k bigint PRIMARY KEY, g int, v bigint)")
        begun = time.time()
        fill(session, "t", rows, "i, (i % 1000)::int, i", 1_000_000)
        print(f"{rows:,} rows written by INSERT … SELECT: {rows / (time.time() - begun):,.0f} rows/s", flush=True)
        query = "SELECT g, count(*) AS n, sum(v) AS s FROM t GROUP BY g"
        begun = time.time()
        session.run(f"CREATE MATERIALIZED VIEW grouped AS {query}")
        print(f"backfill of a grouped view: {rows / (time.time() - begun):,.0f} rows/s (goal 1,000,000)", flush=True)

        def single(n):
            return f"INSERT INTO t VALUES ({rows + n}, 1, 1)"

        alone = Writer(server, single, 0.005)
        time.sleep(10)
        alone.stop()
        bulk = "INSERT INTO u SELECT i, 1, i FROM generate_series({0}, {0} + 9999) s (i)"
        before = Writer(server, lambda n: bulk.format(n * 10_000))
        time.sleep(10)
        before.stop()
        # One actor for the view, so that a core is free for each.
        session.run("SET streaming_parallelism = 1; SET background_ddl = true")
        base = rows + len(alone.times)
        beside = Writer(server, lambda n: f"INSERT INTO t VALUES ({base + n}, 1, 1)", 0.005)
        views = 0
        while len(beside.times) < 500:
            views += 1
            session.run(f"CREATE MATERIALIZED VIEW again{views} AS {query}")
            while not created(session, f"again{views}") and len(beside.times) < 500:
                time.sleep(0.05)
        session.run("WAIT")
        beside.stop()
        for what, writer in [("alone", alone), ("beside a backfill", beside)]:
            print(f"INSERT acknowledged {what}: median {statistics.median(writer.times) * 1000:.1f} ms, "
                  f"99 % {percentile(writer.times, 0.99):.1f} ms", flush=True)
        start = len(before.times)
        during = Writer(server, lambda n: bulk.format((start + n) * 10_000))
        busy = 0.0
        while busy < 10:
            views += 1
            session.run(f"CREATE MATERIALIZED VIEW again{views} AS {query}")
            begun = time.perf_counter()
            session.run("WAIT")
            busy += time.perf_counter() - begun
        during.stop()
        rate = [len(w.times) * 10_000 / (w.ends[-1] - w.ends[0] + w.times[0]) for w in (before, during)]
        print(f"rows written by statements of 10,000: {rate[0]:,.0f}/s alone, {rate[1]:,.0f}/s beside backfills: "
              f"{rate[1] / rate[0] * 100:.0f} % (goal 80)", flush=True)

        session.run(f"SET backfill_rate_limit = {rows // 10}; CREATE MATERIALIZED VIEW killed AS {query}")
        while progress(session, "killed") < rows // 5:
            time.sleep(0.05)
        reached = progress(session, "killed")
        server.kill()
        begun = time.time()
        server.start()
        session = Session(server)
        first = progress(session, "killed")
        while progress(session, "killed") <= first:
            time.sleep(0.01)
        print(f"backfill after kill -9: goes on {time.time() - begun:.2f} s after the start (goal 2), at row {first:,}, "
              f"when {reached:,} were last seen before", flush=True)
    finally:
        server.stop()


def isolation(binary, jobs=50):
    server = Server(binary)
    try:
        session = Session(server)
        for i in range(jobs):
            session.run(f"CREATE TABLE t{i} (k int PRIMARY KEY); "
                        f"CREATE MATERIALIZED VIEW v{i} AS SELECT count(*) AS n FROM t{i}")
        written = [0] * jobs

        def freshness(rounds=20):
            times = []
            for _ in range(rounds):
                for i in range(1, jobs):
                    session.run(f"INSERT INTO t{i} VALUES ({written[i]})")
                    written[i] += 1
                    begun = time.perf_counter()
                    while reader.run(f"SELECT n FROM v{i}") != [str(written[i])]:
                        pass
                    times.append(time.perf_counter() - begun)
            return times

        reader = Session(server)
        freshness(3)
        before = freshness()
        session.run("INSERT INTO t0 SELECT * FROM generate_series(1000, 100000); ALTER MATERIALIZED VIEW v0 PAUSE")
        session.run("INSERT INTO t0 SELECT * FROM generate_series(200000, 300000)")
        session.run("SET background_ddl = true; SET backfill_rate_limit = 0; CREATE MATERIALIZED VIEW w0 AS SELECT * FROM t0")
        after = freshness()
        shares = [percentile(times, 0.99) for times in (before, after)]
        print(f"freshness of {jobs - 1} views: 99 % {shares[0]:.2f} ms; with one job blocked {shares[1]:.2f} ms: "
              f"{shares[1] / shares[0] * 100:.0f} % (goal 120)", flush=True)
    finally:
        server.stop()


def rescaling(binary, gigabytes):
    server = Server(binary)
    try:
        session = Session(server)
        session.run("SET streaming_parallelism = 1")
        session.run("CREATE TABLE t (k bigint PRIMARY KEY, pad varchar)")
        rows = int(gigabytes * 1_000_000)
        pad = " || ".join(f"md5((i * 31 + {n})::varchar)" for n in range(31))
        fill(session, "t", rows, f"i, {pad}", 100_000)
        print(f"{rows:,} rows, {server.state_mb()} MB", flush=True)

        def insert(n):
            return f"INSERT INTO t VALUES ({rows + n}, 'x')"

        writer = Writer(server, insert)
        time.sleep(2)
        for parallelism in (2, 1):
            at = len(writer.times)
            begun = time.perf_counter()
            session.run(f"ALTER TABLE t SET PARALLELISM = {parallelism}")
            time.sleep(3)
            pause = max(writer.times[at:])
            print(f"rescale to {parallelism}: writes paused for {pause:.2f} s (goal 1)", flush=True)
        writer.stop()
        n = len(writer.times)
        session.run("ALTER TABLE t PAUSE")
        begun = time.perf_counter()
        session.run("ALTER TABLE t RESUME")
        session.run(insert(n))
        print(f"start of the stopped job: {time.perf_counter() - begun:.2f} s until it has committed (goal 1)", flush=True)
        server.kill()
        begun = time.perf_counter()
        server.start()
        Session(server).run(insert(n + 1))
        print(f"start of the process after kill -9: {time.perf_counter() - begun:.2f} s until the job has committed",
              flush=True)
    finally:
        server.stop()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("--scale", type=float, default=1.0)
    arguments = parser.parse_args()
    backfill(arguments.binary, int(10_000_000 * arguments.scale))
    isolation(arguments.binary)
    rescaling(arguments.binary, 5 * arguments.scale)


main()
