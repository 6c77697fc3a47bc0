# `make demo` and `make test` do all set-up on a fresh Debian or Ubuntu machine with Python 3.10 or newer.
.PHONY: demo test test-all faults check bench clean

demo:
	@bash .ci/setup
	@.venv/bin/splatview demo --out splatview-demo.png

test:  # minutes: without the tests that repeat for long what others show once
	@bash .ci/setup test
	@.venv/bin/python -m pytest -n 2 --dist loadfile -m "not exhaustive"

test-all:
	@bash .ci/setup test
	@.venv/bin/python -m pytest -n 2 --dist loadfile

faults:  # what may happen beside a training, alone and with all figures: kills, floods, full disks, hostile input
	@bash .ci/setup test
	@.venv/bin/python -m pytest -n 2 --dist loadfile tests/faults tests/cuda/test_fault_*.py  # the latter on a GPU

check:  # what a change is held to beside the tests
	@bash .ci/setup dev
	@.venv/bin/ruff check .
	@.venv/bin/pyright

bench:
	@bash .ci/setup test
	@.venv/bin/python -m benchmarks

clean:
	rm -rf .venv build dist *.egg-info .pytest_cache .ruff_cache splatview-demo.png
