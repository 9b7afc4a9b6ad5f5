#!/usr/bin/env python3
"""Checks the expected values of sqllogictest files against a plain PostgreSQL.

    check.py [--port PORT] [--fill] FILE_OR_FOLDER …

Without --port a scratch cluster is made for the run (as user `postgres` when called by root) and thrown away.
Needs psycopg 3. CREATE MATERIALIZED VIEW becomes CREATE VIEW, and what PostgreSQL does not have is skipped. Markers:

    # @nopg        PostgreSQL cannot judge the next record
    # @pgsql SQL   it runs this instead of the next record

--fill writes the rows of queries whose column types are given as `?`, and the types.
"""
import argparse
import glob
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile

import psycopg

SKIPPED = re.compile(
    r"(?i)^\s*(flush|wait|describe|desc|cancel\s+jobs?|(create|drop|alter)\s+(sink|source)"
    r"|show\s+(tables|views|materialized|indexes|columns|create|jobs|sources|sinks|schemas|databases)"
    r"|set\s+(rw_\w+|streaming_\w+|background_ddl|backfill_rate_limit|sink_decouple))\b"
)
INTEGERS, NUMBERS = {20, 21, 23, 26}, {700, 701, 1700}


class Record:
    def __init__(self, head, line):
        self.head, self.line = head, line
        self.sql, self.expected, self.session = [], [], None
        self.nopg, self.pgsql = False, None
        self.end = line


def parse(path):
    """The records of a file, in order."""
    records, session, nopg, pgsql, record = [], None, False, None, None
    in_rows = False
    for number, line in enumerate(open(path, encoding="utf-8").read().split("\n")):
        if record is not None:
            record.end = number
            if not line.strip():
                record = None
            elif line.strip() == "----" and record.head[0] == "query":
                in_rows = True
            elif in_rows:
                record.expected.append(line)
            else:
                record.sql.append(line)
        elif line.startswith("#"):
            marker = line[1:].strip()
            nopg = nopg or marker == "@nopg"
            if marker.startswith("@pgsql "):
                pgsql = marker[len("@pgsql "):]
        elif line.startswith("connection "):
            session = line.split()[1]
        elif line.startswith(("statement ", "query ", "system ")):
            record = Record(line.split(None, 2), number)
            record.session, record.nopg, record.pgsql = session or "default", nopg, pgsql
            records.append(record)
            session, nopg, pgsql, in_rows = None, False, None, False
        elif line.strip() and not line.startswith(("control ", "sleep ", "halt")):
            raise SystemExit(f"{path}:{number + 1}: cannot read `{line}`")
    return records


def as_postgres(sql):
    return re.sub(r"(?i)\b(create|drop)\s+materialized\s+view\b", r"\1 VIEW", sql)


def normal(text):
    return " ".join(text.split())


def rows_of(result):
    cells = lambda row: (result.get_value(row, c) for c in range(result.nfields))
    show = lambda v: "NULL" if v is None else v.decode() or "(empty)"
    return [[normal(show(v)) for v in cells(row)] for row in range(result.ntuples)]


def check_record(record, session, variables, fill):
    """None when PostgreSQL agrees; a text when not; new lines of the file when filled."""
    sql = record.pgsql or "\n".join(record.sql)
    if record.nopg or record.head[0] == "system" or (record.pgsql is None and SKIPPED.match(sql)):
        return None
    for name, value in variables.items():
        sql = sql.replace("${" + name + "}", value)
    kind, wanted, *rest = record.head
    try:
        cursor = session.execute(as_postgres(sql))
    except psycopg.Error as error:
        text = f"{error.sqlstate} {error}"
        if kind == "statement" and wanted == "error":
            pattern = rest[0] if rest else ""
            return None if re.search(pattern, text) else f"the error is another one: {text}"
        return text
    if kind == "statement":
        if wanted == "error":
            return "no error"
        if wanted == "count" and str(cursor.rowcount) != rest[0]:
            return f"count is {cursor.rowcount}"
        return None
    result = cursor.pgresult
    rows = rows_of(result)
    if rest and rest[0] == "rowsort":
        rows.sort()
    rows = [" ".join(row) for row in rows]
    if fill and wanted == "?":
        letter = lambda oid: "I" if oid in INTEGERS else "R" if oid in NUMBERS else "T"
        types = "".join(letter(result.ftype(c)) for c in range(result.nfields))
        return [" ".join(["query", types, *rest]), *record.sql, "----", *rows]
    expected = [normal(line) for line in record.expected]
    return None if rows == expected else "rows differ:\n  " + "\n  ".join(rows)


def check_file(path, connect, fill):
    name = "oracle_" + re.sub(r"\W", "_", path)[-40:].lower()
    with connect("postgres") as admin:
        admin.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')
        admin.execute(f'CREATE DATABASE "{name}"')
    sessions, problems, filled = {}, [], []
    variables = {"dir": os.path.dirname(os.path.abspath(path))}
    for record in parse(path):
        if record.session not in sessions:
            sessions[record.session] = connect(name)
        outcome = check_record(record, sessions[record.session], variables, fill)
        if isinstance(outcome, list):
            filled.append((record, outcome))
        elif outcome:
            problems.append(f"{path}:{record.line + 1}: {outcome}")
    for session in sessions.values():
        session.close()
    with connect("postgres") as admin:
        admin.execute(f'DROP DATABASE "{name}" WITH (FORCE)')
    if filled:
        lines = open(path, encoding="utf-8").read().split("\n")
        for record, new in reversed(filled):
            end = record.end if not lines[record.end].strip() else record.end + 1
            lines[record.line:end] = new
        open(path, "w", encoding="utf-8").write("\n".join(lines))
    return problems


class Cluster:
    """A scratch cluster on loopback."""

    def __init__(self):
        self.dir = tempfile.mkdtemp(prefix="oracle-")
        self.bin = subprocess.check_output(["pg_config", "--bindir"], text=True).strip() + "/"
        self.user = "postgres" if os.geteuid() == 0 else None
        if self.user:
            shutil.chown(self.dir, self.user)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        data = os.path.join(self.dir, "data")
        self.run("initdb", "-D", data, "-U", "postgres", "-A", "trust", "--locale=C", "-E", "UTF8")
        options = f"-p {self.port} -c listen_addresses=127.0.0.1 -k {self.dir} -c timezone=UTC -c fsync=off"
        self.run("pg_ctl", "-D", data, "-w", "-l", os.path.join(self.dir, "log"), "-o", options, "start")

    def run(self, program, *args):
        subprocess.run([self.bin + program, *args], user=self.user, cwd=self.dir, check=True, stdout=subprocess.DEVNULL)

    def stop(self):
        self.run("pg_ctl", "-D", os.path.join(self.dir, "data"), "-m", "immediate", "stop")
        shutil.rmtree(self.dir, ignore_errors=True)


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("paths", nargs="+")
    arguments.add_argument("--port", type=int)
    arguments.add_argument("--fill", action="store_true")
    options = arguments.parse_args()
    files = []
    for path in options.paths:
        inside = sorted(glob.glob(os.path.join(path, "**", "*.slt"), recursive=True))
        files += inside if os.path.isdir(path) else [path]
    cluster = None if options.port else Cluster()
    port = options.port or cluster.port
    connect = lambda db: psycopg.connect(
        host="127.0.0.1", port=port, user="postgres", dbname=db, autocommit=True, client_encoding="utf8"
    )
    try:
        problems = [p for path in files for p in check_file(path, connect, options.fill)]
    finally:
        if cluster:
            cluster.stop()
    print("\n".join(problems))
    print(f"{len(files)} files, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
