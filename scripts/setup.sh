#!/usr/bin/env bash
# Installs what building and testing need and the machine lacks. Quick when nothing is missing.
set -euo pipefail

packages=()
need() { # need COMMAND-OR-FILE PACKAGE
    command -v "$1" >/dev/null 2>&1 || [ -e "$1" ] || packages+=("$2")
}
need clang clang
need cmake cmake
need pkg-config pkg-config
need mold mold
need ccache ccache
need psql postgresql-client
need /usr/lib/postgresql/15/bin/initdb postgresql-15
python3 -c 'import ensurepip' 2>/dev/null || packages+=(python3-venv)
compgen -G '/usr/lib/llvm-*/lib/libclang.so*' >/dev/null || packages+=(libclang-dev)

if [ ${#packages[@]} -gt 0 ]; then
    echo "installing: ${packages[*]}"
    as_root=()
    [ "$(id -u)" = 0 ] || as_root=(sudo)
    "${as_root[@]}" apt-get update -qq
    DEBIAN_FRONTEND=noninteractive "${as_root[@]}" apt-get install -y -qq "${packages[@]}" >/dev/null
fi

if ! command -v cargo-nextest >/dev/null 2>&1; then
    echo "installing: cargo-nextest"
    cargo install --locked --quiet cargo-nextest
fi
