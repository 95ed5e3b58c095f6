# Needs python3 (3.11 or newer), pip and make. Everything is installed below this folder, linked from uv's cache,
# except the embedded model, which is in Signoff's cache. `make demo` names both folders.
PYTHON ?= python3
PORT ?= 8080
TASK ?= Change the port in config.py to $(PORT)
# Only the default task has a check; the card of any other TASK says that none ran.
CHECK = $(if $(filter file,$(origin TASK)),--check "python ../../examples/demo_check.py $(PORT)")

UV := $(shell command -v uv || echo .tools/bin/uv)
RUN := $(UV) run --no-sync
# The tests kill processes but do not cut the power, so waiting for the disk (fsync) would test nothing more.
TESTS := $(shell command -v eatmydata) $(RUN) pytest -n 2 --dist loadfile --no-loadscope-reorder
DEMO := .demo
# PART=K/N: of the sweeps and the versions each Nth, beginning with the Kth.
PART ?= 0/1

# Otherwise Python would not keep its bytecode, and every process that a test starts would compile everything again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: conformance demo embedded test thorough check fast proof quick promises sweeps versions docs clean

.PHONY: help demo-port clean-all coverage build portable all-thorough
.DEFAULT_GOAL := help

## help: lists the commands
help:
	@echo "make COMMAND, of these:"
	@sed -n 's/^## \([a-z-]*\): \(.*\)/\1|\2/p' Makefile | awk -F'|' '{ printf "  %-11s %s\n", $$1, $$2 }'

## demo: the embedded model changes the port of a small project; no key, no network after the installation
demo: demo-port .venv/demo
	@rm -rf $(DEMO) && mkdir -p $(DEMO) && cp -r examples/sample $(DEMO)/project
	@$(RUN) signoff run "$(TASK)" $(CHECK) --workspace $(DEMO)/project --database $(DEMO)/threads.sqlite --thread demo; \
	code=$$?; \
	diff -r -U 1 --exclude=.signoff examples/sample $(DEMO)/project; \
	echo; echo "Every turn and its rule:  .venv/bin/signoff show demo --database $(DEMO)/threads.sqlite"; \
	echo "A task of your own:       make demo TASK=\"Set DEBUG to True in config.py\""; \
	echo "Which model this is:      .venv/bin/python -m signoff.models.local info"; \
	exit $$code

demo-port:
	@$(PYTHON) examples/demo_check.py --port-only "$(PORT)"

.venv/demo: uv.lock pyproject.toml $(filter .tools/%,$(UV))
	@$(PYTHON) examples/demo/install.py "$(UV)"
	@touch $@

## test: style, types, and a test of every promise; the time budget is 7 minutes
test: .venv/installed
	@$(RUN) python -m tests.budget "make test" 7 $(MAKE) --no-print-directory quick

quick:
	@$(MAKE) --no-print-directory --jobs 2 promises check

## thorough: the full proof, the lowest and newest versions, the sweeps; the time budget is 24 minutes
thorough: .venv/installed
	@$(RUN) python -m tests.budget "make thorough" 24 $(MAKE) --no-print-directory all-thorough

all-thorough:
	@$(MAKE) --no-print-directory --jobs 2 proof versions
	@$(MAKE) --no-print-directory sweeps

## check: style and types
check: .venv/installed
	$(RUN) ruff check
	$(RUN) ruff format --check
	$(RUN) mypy

## fast: the tests that need one process, for use while you work
fast: .venv/installed
	$(TESTS)

promises: .venv/installed
	$(TESTS) -m "not thorough" --timeout 300 --durations 12

sweeps: .venv/installed
	$(TESTS) -m "thorough and not embedded" --timeout 600 --part $(PART)

## embedded: more tasks for the embedded model: a custom task, rounds, the text protocol, another call after a finish
embedded: .venv/installed
	$(TESTS) -m embedded --timeout 600

## proof: checks every reachable state, every property and every mutation
proof: .venv/installed
	$(RUN) python -m tests.proof

## versions: tests that touch every dependency, with its lowest and newest version, on each Python that is here
versions: .venv/installed
	$(RUN) python -m tests.versions --part $(PART)

# `.bench/` holds an environment for the suite and its public tasks, one for each framework, and the runs so far.
LOOPCHECK := .bench/loopcheck/bin/python -m loopcheck
SEEDS ?= 1 2
## conformance: all frameworks, public tasks under faults and unit cases; resumes an interrupted run; FULL=1 runs all
conformance: .bench/loopcheck/made
	$(LOOPCHECK) run --seeds $(SEEDS) $(if $(FULL),--full) --folder .bench/runs --json .bench/conformance.json

.bench/loopcheck/made: conformance/pyproject.toml conformance/subjects/subjects.toml $(filter .tools/%,$(UV))
	UV=$(UV) PYTHONPATH=conformance $(PYTHON) -m loopcheck install
	@touch $@

## docs: builds the pages in build/site; every warning is an error (never use -q, which hides them)
docs: .venv/installed
	@NO_MKDOCS_2_WARNING=1 $(RUN) mkdocs build --strict

# The floor, in per cent of graph/, nodes/, tools/ and signoff/, for the tests that need one process.
COVERED ?= 60
## coverage: measures the coverage of the fast tests, and fails below the floor
# The ignored file interrupts the program at any moment, even while coverage holds its own lock.
coverage: .venv/installed
	@rm -f .coverage .coverage.*
	$(RUN) coverage run -m pytest -n 2 --dist loadfile -q -p no:cacheprovider --timeout 600 \
		--ignore tests/storage/test_sqlite_interrupts.py
	@$(RUN) coverage combine -q
	$(RUN) coverage report --fail-under=$(COVERED)

## portable: tests what must work on every system, with the Signoff that is installed here
portable: .venv/installed
	$(RUN) python -P tests/portable.py

## build: builds the sdist and the wheel in dist/
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

## clean: removes everything that was installed or made below this folder
clean:
	rm -rf .venv .tools $(DEMO) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .coverage .coverage.*

## clean-all: like clean, and also removes the embedded model from Signoff's cache and from uv's
clean-all:
	@$(PYTHON) examples/demo/install.py "$(UV)" --remove
	@$(MAKE) --no-print-directory clean
