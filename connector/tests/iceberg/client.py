"""What other clients see of a table: prints the rows as JSON, one a line, sorted.

client.py pyiceberg CATALOG WAREHOUSE [FILTER]   the rows, or those that a filter keeps
client.py duckdb METADATA                        the rows, as text
client.py append CATALOG WAREHOUSE               appends a row to a table of `id` and `name`
client.py create CATALOG WAREHOUSE               makes a table of types that Weir does not have, with partitions
client.py s3                                     serves an object store, until its input ends; prints the URL
"""

import json
import sys


def table(catalog, warehouse):
    from pyiceberg.catalog.sql import SqlCatalog

    return SqlCatalog("weir", uri=catalog, warehouse=warehouse)


def show(rows):
    for row in sorted(json.dumps(row, default=str, ensure_ascii=False) for row in rows):
        print(row)


def pyiceberg(catalog, warehouse, row_filter=None):
    scan = table(catalog, warehouse).load_table("d.t")
    scan = scan.scan(row_filter=row_filter) if row_filter else scan.scan()
    show([list(row.values()) for row in scan.to_arrow().to_pylist()])


def duckdb(metadata):
    import duckdb
    from duckdb_extensions import import_extension

    for extension in ["avro", "iceberg"]:
        import_extension(extension)
    connection = duckdb.connect()
    connection.execute("LOAD avro; LOAD iceberg; SET TimeZone = 'UTC'")
    show(connection.execute(f"SELECT COLUMNS(*)::VARCHAR FROM iceberg_scan('{metadata}')").fetchall())


def append(catalog, warehouse):
    import pyarrow

    loaded = table(catalog, warehouse).load_table("d.t")
    loaded.append(pyarrow.table({"id": pyarrow.array([100], pyarrow.int64()), "name": ["pyiceberg"]}))


def create(catalog, warehouse):
    from pyiceberg.partitioning import PartitionField, PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.transforms import BucketTransform, IdentityTransform
    from pyiceberg.types import BinaryType, DecimalType, FixedType, LongType, NestedField, StringType, UUIDType

    schema = Schema(
        NestedField(1, "ID", LongType(), required=True),
        NestedField(2, "unused", BinaryType()),
        NestedField(3, "Name", StringType()),
        NestedField(4, "u", UUIDType()),
        NestedField(5, "f", FixedType(2)),
        NestedField(6, "n", DecimalType(10, 3)),
    )
    spec = PartitionSpec(
        PartitionField(3, 1000, IdentityTransform(), "Name"), PartitionField(1, 1001, BucketTransform(4), "bucket")
    )
    sql = table(catalog, warehouse)
    sql.create_namespace("d")
    sql.create_table("d.t", schema=schema, partition_spec=spec)


def s3():
    import boto3
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    url = f"http://{host}:{port}"
    keys = {"aws_access_key_id": "key", "aws_secret_access_key": "secret", "region_name": "us-east-1"}
    boto3.client("s3", endpoint_url=url, **keys).create_bucket(Bucket="bucket")
    print(url, flush=True)
    sys.stdin.read()


{f.__name__: f for f in [pyiceberg, duckdb, append, create, s3]}[sys.argv[1]](*sys.argv[2:])
