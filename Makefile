# `make demo` and `make test` do all set-up on a fresh Debian or Ubuntu machine with Python 3.11 or newer.
.PHONY: demo test test-all faults check bench clean

# Tests wait for programs much of the time: two workers for each processor, at most one for every 2 GB of memory.
WORKERS ?= $(shell awk '/^MemTotal/ {g = int($$2 / 2 ^ 20 / 2) ; n = 2 * '$$(nproc)'; if (n > 16) n = 16; if (n > g) n = g; print n < 1 ? 1 : n}' /proc/meminfo)
PYTEST = .venv/bin/python -m pytest -n $(WORKERS) --dist loadfile

demo:
	@bash .ci/setup
	@.venv/bin/splatview demo --out splatview-demo.png

test:  # minutes: without the tests that repeat for long what others show once
	@bash .ci/setup test
	@$(PYTEST) -m "not exhaustive"

test-all:
	@bash .ci/setup test
	@$(PYTEST)

faults:  # kills, floods, full disks and hostile input, those on a GPU included
	@bash .ci/setup test
	@$(PYTEST) tests/faults tests/cuda/test_fault_*.py

check:  # lint, and the types of product, examples, benchmarks and tests
	@bash .ci/setup dev
	@.venv/bin/ruff check .
	@.venv/bin/pyright --threads

bench:
	@bash .ci/setup test
	@.venv/bin/python -m benchmarks

clean:
	rm -rf .venv build dist *.egg-info .pytest_cache .ruff_cache splatview-demo.png
