#!/usr/bin/env bash
# Makes a Python environment with the packages that tests read tables with, and prints its interpreter:
# WEIR_PYTHON=$(scripts/python.sh). Quick when it is there.
set -euo pipefail

packages=(
    'pyiceberg[sql-sqlite,sql-postgres,pyarrow,pyiceberg-core]==0.12.0'
    'pyarrow==26.0.1'
    'duckdb==1.5.5'
    'duckdb-extensions==1.5.5'
    'duckdb-extension-iceberg==1.5.5'
    'duckdb-extension-avro==1.5.5'
    'moto[server,s3]==5.2.5'
)
environment=${WEIR_PYTHON_DIR:-$HOME/.cache/weir/python}
if [ "$(cat "$environment/packages" 2>/dev/null)" != "${packages[*]}" ]; then
    rm -rf "$environment"
    python3 -m venv "$environment" >&2
    "$environment/bin/pip" install --quiet --disable-pip-version-check "${packages[@]}" >&2
    # Written last: an environment without it is not whole.
    echo "${packages[*]}" >"$environment/packages"
fi
echo "$environment/bin/python"
