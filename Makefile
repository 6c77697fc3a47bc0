# `make demo` and `make test` do all set-up on a fresh Debian or Ubuntu machine with Python 3.11 or newer.
.PHONY: demo test test-all faults check bench clean

WORKERS ?= 2
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
