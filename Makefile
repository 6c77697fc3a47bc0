# `make demo` and `make test` do all set-up on a fresh Debian or Ubuntu machine with Python 3.11 or newer.
.PHONY: demo test soak check bench pictures docs links clean

# Many tests wait for other programs: one worker more than there are processors.
WORKERS ?= $(shell echo $$(($$(nproc) + 1)))
SPHINX = .venv/bin/python -m sphinx -q -W --keep-going -j auto -d build/doctrees
PYTEST = .venv/bin/python -m pytest --durations=30

demo:  # without a terminal and a display, where nobody would end it, it ends with its picture
	@bash .ci/setup
	@[ -t 0 ] && [ -t 1 ] || [ "$$DISPLAY$$WAYLAND_DISPLAY" ] || set -- --exit; \
	  .venv/bin/splatview demo --out splatview-demo.png "$$@"

test:  # what repeats for long is `make soak`
	@bash .ci/setup test
	@$(PYTEST) -n $(WORKERS) --dist loadfile -m "not soak"

soak:  # kills, stops, floods, load, growth, fuzzing: at most 20 minutes, by hand and nightly
	@bash .ci/setup test
	@timeout --foreground 1200 $(PYTEST) -n $(WORKERS) --dist loadfile -m soak

pictures:  # the interface in its states, into build/pictures; SCENE=scene.ply for another scene
	@bash .ci/setup dev
	@.venv/bin/python tools/pictures.py build/pictures $(if $(SCENE),--scene $(SCENE))

check:  # format, lint, spelling, the arrows between rooms, and the types of product, tools, examples, benchmarks and tests
	@bash .ci/setup dev
	@.venv/bin/ruff format --check .
	@.venv/bin/ruff check .
	@.venv/bin/codespell
	@.venv/bin/python tools/readability.py
	@.venv/bin/lint-imports
	@.venv/bin/pyright --threads

docs:  # the pages into build/docs, and their links to each other; no network is needed
	@bash .ci/setup dev
	@$(SPHINX) -b html docs build/docs
	@.venv/bin/python tools/check_links.py build/docs

links:  # the pages' links to other sites, by hand: sites come and go
	@bash .ci/setup dev
	@$(SPHINX) -b linkcheck docs build/links

bench:
	@bash .ci/setup test
	@.venv/bin/python -m benchmarks

clean:
	rm -rf .venv build dist *.egg-info .pytest_cache .ruff_cache splatview-demo.png
