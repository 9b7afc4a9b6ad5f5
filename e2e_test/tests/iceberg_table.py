"""What others see of an Iceberg table that a sink writes to. Prints one JSON object:

rows      the table's rows as text, sorted, read by DuckDB
same      whether PyIceberg reads the same rows; null if it cannot (equality deletes)
commits   how many snapshots a sink has committed, and how many different commits these are
orphans   data files that no snapshot refers to

iceberg_table.py CATALOG WAREHOUSE TABLE
"""

import json
import os
import sys
from urllib.parse import unquote, urlparse

import duckdb
from duckdb_extensions import import_extension
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.manifest import DataFileContent


def path(location):
    return os.path.realpath(unquote(urlparse(location).path)) if location.startswith("file:") else os.path.realpath(location)


catalog, warehouse, name = sys.argv[1:]
table = SqlCatalog("weir", uri=catalog, warehouse=warehouse).load_table(name)

for extension in ["avro", "iceberg"]:
    import_extension(extension)
connection = duckdb.connect()
connection.execute("LOAD avro; LOAD iceberg; SET TimeZone = 'UTC'")
rows = connection.execute(f"SELECT COLUMNS(*)::VARCHAR FROM iceberg_scan('{table.metadata_location}')").fetchall()
rows = sorted(" | ".join("NULL" if cell is None else cell for cell in row) for row in rows)

referred, has_equality_deletes = set(), False
for snapshot in table.metadata.snapshots:
    for manifest in snapshot.manifests(table.io):
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=False):
            referred.add(path(entry.data_file.file_path))
            has_equality_deletes |= entry.data_file.content == DataFileContent.EQUALITY_DELETES
found = set()
for folder, _, files in os.walk(path(table.location()) + "/data"):
    found.update(os.path.realpath(os.path.join(folder, file)) for file in files)

same = None
if not has_equality_deletes:
    seen = table.scan().to_arrow().to_pylist()
    same = sorted(" | ".join("NULL" if v is None else str(v) for v in row.values()) for row in seen) == rows

properties = [snapshot.summary.additional_properties for snapshot in table.metadata.snapshots if snapshot.summary]
commits = [p["weir.commit"] for p in properties if "weir.commit" in p]
print(json.dumps({
    "rows": rows,
    "same": same,
    "commits": [len(commits), len(set(commits))],
    "orphans": sorted(found - referred),
}))
