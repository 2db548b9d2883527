# make demo   runs it     make test   checks it     make help   lists the rest

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
RUNS   ?= 100
SEEDS  ?= 1000
TESTS  ?=
PIP    := $(BIN)/pip install --quiet --disable-pip-version-check
PYTEST := $(BIN)/pytest --numprocesses auto --dist loadfile --no-loadscope-reorder
SAY_IF_SLOW = $(BIN)/python -c 'from processor.core import native; native.tier() == "native" or print(native.REMEDY)'

.DEFAULT_GOAL := help
.PHONY: help setup servers demo test coverage lint format experiments simulate chaos chaos-cluster chaos-rolling \
        chaos-idle chaos-operators soak chaos-audit chaos-gauges watch-scenario bench bench-parts figures-of-code clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

setup: $(VENV)/ready  ## build .venv with everything in it

# All of it when pyproject.toml has changed, else the native modules alone. Without a C compiler the reference tier is
# used: see hatch_build.py.
$(VENV)/ready: pyproject.toml hatch_build.py $(wildcard processor/*/*/*.pyx processor/core/native/*.[hp]*)
	@if [ -e $(VENV)/installed ] && [ ! pyproject.toml -nt $(VENV)/installed ]; then \
	  $(PIP) --no-deps --editable .; else $(MAKE) --no-print-directory $(VENV)/installed; fi
	@touch $@
	@$(SAY_IF_SLOW)

$(VENV)/installed: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or later is needed; '$(PYTHON)' is $$($(PYTHON) -V 2>&1). Try: make PYTHON=python3.12 …"; exit 1; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || \
	  { echo "'$(PYTHON)' cannot make virtual environments. On Debian and Ubuntu: apt-get install python3-venv"; exit 1; }
	@echo "setting up $(VENV) (once, a minute or a few) …"
	@$(PYTHON) -m venv --clear $(VENV)
	@$(PIP) --editable '.[experiments,dev]'
	@touch $@

servers:  ## fetch what the tests on real Kafka and Redis want, where that is possible
	@PYTHON=$(PYTHON) sh tests/setup_system.sh

demo: setup  ## watch a gap close, in the terminal
	@$(BIN)/gforce demo

test: servers setup lint  ## all checks and tests (TESTS=tests/unit for some)
	$(PYTEST) $(TESTS)

coverage: servers setup  ## the same tests, and which lines they do not reach (takes twice as long)
	$(PYTEST) --cov --cov-report=term $(TESTS)

lint: setup  ## style, types and the import contract
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

format: setup  ## rewrite the sources in the agreed style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

experiments: setup  ## all experiments, with tables, pictures and JSON (RUNS=100 DATA=folder)
	mkdir -p figures
	$(BIN)/gforce experiment synthetic --runs $(RUNS) --json figures/synthetic.json
	$(BIN)/gforce experiment pareto --json figures/pareto.json
	$(BIN)/gforce experiment delay --runs $(RUNS) --json figures/delay.json
	$(BIN)/gforce experiment stress --runs $(RUNS) --json figures/stress.json
ifdef DATA
	$(BIN)/gforce experiment real --data-dir $(DATA) --json figures/real.json
else
	@echo "For the real data sets: make experiments DATA=folder-with-adult-compas-german"
endif

simulate: setup  ## many histories of crashes, and the protocol broken on purpose (SEEDS=1000)
	$(BIN)/python -m tests.simulation --seeds $(SEEDS) --mutants

chaos: servers setup  ## real processors, broker and Redis, killed at random under load (six minutes)
	$(BIN)/python -m tests.chaos

chaos-cluster: servers setup  ## the same on a Redis Cluster (three minutes)
	$(BIN)/python -m tests.chaos --cluster

chaos-rolling: servers setup  ## rolling restarts under load
	$(BIN)/python -m tests.chaos.rolling

chaos-operators: servers setup  ## what operators, other programs and servers do wrong, a row for each (ten minutes)
	$(BIN)/python -m tests.chaos.operators

SOAK   ?= 1200
soak: servers setup  ## 3 000 requests/s for SOAK=1200 seconds: memory, descriptors and latency per minute
	$(BIN)/python -m tests.chaos.soak --seconds $(SOAK)

AUDIT  ?= /tmp/gforce-audit
chaos-audit: servers setup  ## 200 000 requests under kills, recorded, then audited as a stranger would (AUDIT=folder)
	mkdir -p $(AUDIT)
	$(BIN)/python -m tests.chaos --requests 200000 --rate 600 --kills 30 --seconds-limit 900 --record $(AUDIT) \
	  --snapshot-bytes 1500000
	cd / && NPY_DISABLE_CPU_FEATURES="AVX512F AVX2 FMA3" OPENBLAS_CORETYPE=Nehalem $(CURDIR)/$(BIN)/gforce audit \
	  $(AUDIT)/recording --config $(AUDIT)/gforce.toml
	$(BIN)/gforce audit $(AUDIT)/*.json --config $(AUDIT)/gforce.toml
	$(BIN)/gforce audit $(AUDIT)/recording --config $(AUDIT)/gforce.toml --from-snapshot --partitions 0  # the busiest

chaos-gauges: servers setup  ## kills, then every exported gauge against a recomputation from the topics
	$(BIN)/python -m tests.chaos.gauges

watch-scenario: servers setup  ## a drift on a live stream, and who notices it when (two minutes)
	$(BIN)/python -m tests.watching

chaos-idle: servers setup  ## go on after the group's offsets have expired
	$(BIN)/python -m tests.chaos.idle

bench: servers setup  ## throughput beside its limit on real Kafka and Redis, ratios first (docs/benchmarks.md)
	$(BIN)/python -m benchmarks.pipeline

bench-parts: servers setup  ## solver, Redis memory, scrape of 10 000 tenants, audit, latency, growth, recovery
	$(BIN)/python -m benchmarks.solver
	$(BIN)/python -m benchmarks.redis_memory
	$(BIN)/python -m benchmarks.scrape
	$(BIN)/python -m benchmarks.audit 100000 2000000
	$(BIN)/python -m benchmarks.pipeline latency
	for axis in pending tenants experts groups labels partitions processors; do \
	  $(BIN)/python -m benchmarks.pipeline growth $$axis || exit 1; done
	$(BIN)/python -m benchmarks.pipeline recovery

figures-of-code:  ## files, versions, names and lines: what the structure of the code is measured by
	@$(PYTHON) -m tests.figures_of_code

clean:  ## remove .venv and caches
	rm -rf $(VENV) build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage
	find processor -name '*.so' -delete
