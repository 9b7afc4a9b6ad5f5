# `make demo` and `make test` are all one must know. Both install what they need first.

# One target directory outside the checkout, so that every checkout shares the built dependencies.
export CARGO_TARGET_DIR ?= $(HOME)/.cache/weir/target
# RocksDB is compiled once per machine, whatever the profile.
export CC := ccache gcc
export CXX := ccache g++
export CARGO_TERM_COLOR ?= never

.PHONY: demo test bench run fmt lint setup build

run: setup
	cargo run --bin weir -- serve

build: setup
	cargo build --workspace --bins

# The main job on real data: load, views on views, changes, kill -9, restart.
demo: build
	scripts/demo.sh $(CARGO_TARGET_DIR)/debug/weir

# Unit tests first, then the real binary: sqllogictest files, clients, crashes.
test: setup
	cargo build --workspace --bins --features weir-server/failpoints
	WEIR_PYTHON=$$(scripts/python.sh) cargo nextest run --workspace --features weir-server/failpoints

bench: setup
	cargo build --release --bin weir
	python3 scripts/bench_rest.py $(CARGO_TARGET_DIR)/release/weir
	python3 scripts/bench_jobs.py $(CARGO_TARGET_DIR)/release/weir
	python3 scripts/bench.py $(CARGO_TARGET_DIR)/release/weir
	WEIR_MEMORY_LIMIT=1G python3 scripts/bench.py $(CARGO_TARGET_DIR)/release/weir --events 10000000 --into sink --queries q4,q5,q7,q17

fmt:
	cargo fmt --all

lint: setup
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --features weir-server/failpoints -- -D warnings

setup:
	@scripts/setup.sh
