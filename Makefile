# Needs python3 (3.11 or newer), pip and make. Programs and packages are installed below this folder, linked from
# uv's cache; the embedded model is kept in Signoff's. `make demo` names both folders.
PYTHON ?= python3
PORT ?= 8080
TASK ?= Change the port in config.py to $(PORT)
# Only the demo's own task has a check; another TASK has none, and its card says so.
CHECK = $(if $(filter file,$(origin TASK)),--check "python ../../examples/demo_check.py $(PORT)")

UV := $(shell command -v uv || echo .tools/bin/uv)
RUN := $(UV) run --no-sync
# The tests kill processes, they do not cut the power: waiting until the disk has it all shows nothing more.
TESTS := $(shell command -v eatmydata) $(RUN) pytest
DEMO := .demo

# Python then keeps what it compiles; without it every process that a test starts compiles everything anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: conformance demo embedded test thorough check fast proof proof-short quick promises sweeps lowest docs clean

.PHONY: help demo-port clean-all coverage build portable all-thorough
.DEFAULT_GOAL := help

## help: the commands, each in a line
help:
	@echo "make COMMAND, of these:"
	@sed -n 's/^## \([a-z-]*\): \(.*\)/\1|\2/p' Makefile | awk -F'|' '{ printf "  %-10s %s\n", $$1, $$2 }'

## demo: the embedded model changes the port of a small project; no key, no network after the installation
demo: demo-port .venv/demo
	@rm -rf $(DEMO) && mkdir -p $(DEMO) && cp -r examples/sample $(DEMO)/project
	@$(RUN) signoff run "$(TASK)" $(CHECK) --workspace $(DEMO)/project --database $(DEMO)/threads.sqlite --thread demo; \
	code=$$?; \
	diff -r -U 1 --exclude=.signoff examples/sample $(DEMO)/project; \
	echo; echo "Every turn and its rule:  .venv/bin/signoff show demo --database $(DEMO)/threads.sqlite"; \
	echo "A task of your own:       make demo TASK=\"Set DEBUG to True in config.py\""; \
	echo "Which model this is:      .venv/bin/signoff model info"; \
	exit $$code

demo-port:
	@$(PYTHON) examples/demo_check.py --port-only "$(PORT)"

.venv/demo: uv.lock pyproject.toml $(filter .tools/%,$(UV))
	@$(PYTHON) examples/demo/install.py "$(UV)"
	@touch $@

## test: style, types, the proof in its short form, and a test of every promise; its budget is eight minutes
test: .venv/installed
	@$(RUN) python -m tests.budget "make test" 8 $(MAKE) --no-print-directory quick

quick:
	@$(MAKE) --no-print-directory --jobs 2 check proof-short
	@$(MAKE) --no-print-directory promises

## thorough: the sweeps, the proof in full, fuzzing, drawn histories, all sizes; its budget is twenty minutes
thorough: .venv/installed
	@$(RUN) python -m tests.budget "make thorough" 20 $(MAKE) --no-print-directory all-thorough

all-thorough:
	@$(MAKE) --no-print-directory --jobs 2 proof lowest
	@$(MAKE) --no-print-directory sweeps

## check: style and types
check: .venv/installed
	$(RUN) ruff check
	$(RUN) ruff format --check
	$(RUN) mypy

## fast: what runs in one process, for between two changes
fast: .venv/installed
	$(TESTS) --processes 2

promises: .venv/installed
	$(TESTS) -m "not thorough" --timeout 300 --processes 3

sweeps: .venv/installed
	$(TESTS) -m "thorough and not embedded" --timeout 600 --processes 3

## embedded: more tasks for the embedded model: a task of one's own, in rounds, by the text protocol, asked again
embedded: .venv/installed
	$(TESTS) -m embedded --timeout 600

## proof: every state that a run can reach, every property, every mutation
proof: .venv/installed
	$(RUN) python -m tests.proof

proof-short: .venv/installed
	$(RUN) python -m tests.proof --short

## lowest: tests that touch every dependency, on the lowest versions of them, with the lowest and the newest Python
lowest: .venv/installed
	$(RUN) python -m tests.lowest

# Below `.bench/`: an environment for the suite with its public tasks, one for each framework, what was run so far.
LOOPCHECK := .bench/loopcheck/bin/python -m loopcheck
SEEDS ?= 1 2
## conformance: all frameworks on public tasks under faults and on unit cases; goes on where it was; FULL=1 plays all
conformance: .bench/loopcheck/made
	$(LOOPCHECK) run --seeds $(SEEDS) $(if $(FULL),--full) --folder .bench/runs --json .bench/conformance.json

.bench/loopcheck/made: conformance/pyproject.toml conformance/subjects/subjects.toml $(filter .tools/%,$(UV))
	UV=$(UV) PYTHONPATH=conformance $(PYTHON) -m loopcheck install
	@touch $@

## docs: the pages, in build/site; every warning is an error (never with -q, which hides them)
docs: .venv/installed
	@NO_MKDOCS_2_WARNING=1 $(RUN) mkdocs build --strict

# What the tests of one process reach of graph/, nodes/, tools/ and signoff/; those that start processes add to it.
COVERED ?= 60
## coverage: measures what the fast tests reach, and fails below the floor
# One file interrupts the program at any moment, and would do so while coverage holds its own lock.
coverage: .venv/installed
	@rm -f .coverage .coverage.*
	$(TESTS:pytest=coverage) run -m pytest -q -p no:cacheprovider --processes 3 --timeout 600 \
		--ignore tests/storage/test_sqlite_interrupts.py
	@$(RUN) coverage combine -q
	$(RUN) coverage report --fail-under=$(COVERED)

## portable: what has to work on every system, with the Signoff that is installed here
portable: .venv/installed
	$(RUN) python -P tests/portable.py

## build: the sdist and the wheel, into dist/
build: $(filter .tools/%,$(UV))
	@rm -rf dist
	$(UV) build --quiet
	@ls -l dist

.venv/installed: uv.lock pyproject.toml $(filter .tools/%,$(UV))
	$(UV) sync --locked --all-extras --compile-bytecode
	$(RUN) python -m compileall -q signoff graph nodes tools tests
	@touch $@ .venv/demo

.tools/bin/uv:
	$(PYTHON) -m pip install --quiet --target .tools uv

## clean: removes what was installed and made below this folder
clean:
	rm -rf .venv .tools $(DEMO) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .coverage .coverage.*

## clean-all: the same, and the embedded model from Signoff's cache and from uv's
clean-all:
	@$(PYTHON) examples/demo/install.py "$(UV)" --remove
	@$(MAKE) --no-print-directory clean
