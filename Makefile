# Two commands: `make run` trains, `make test` checks. Both set up .venv first; see README.md.
GAME ?= freeway
AGENT ?= comper-single
FRAMES ?= 100000
SEED ?= 0
OUT ?= runs
PYTHON ?= python3
RUN = $(OUT)/$(AGENT)/$(GAME)/seed-$(SEED)
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
READY := .venv/.ready
BENCH_READY := .venv/.bench-ready
DOCS_READY := .venv/.docs-ready

.PHONY: help run test setup lint format types paper-report torture audit lock mutants golden bench bench-gpu docs examples dist
run: setup  ## train on a game, then report (GAME, AGENT, FRAMES, SEED, OUT)
	@if [ -e $(RUN)/manifest.json ]; then $(BIN)/comper resume $(RUN); \
	else $(BIN)/comper train $(GAME) --agent $(AGENT) --frames $(FRAMES) --seed $(SEED) --out $(OUT); fi
	@$(BIN)/comper report $(OUT) --out report

paper-report: setup  ## the report of the 200 trials in results/paper
	@mkdir -p build/paper && for archive in results/paper/*.tar.gz; do tar xzf $$archive -C build/paper; done
	@$(BIN)/comper report build/paper --out report-paper

test: setup lint types  ## lint, types, tests
	@$(BIN)/pytest -n auto --maxprocesses 8 --dist worksteal

# Every fault a run must survive, at full size (hours); the same at a smaller size is part of `make test`.
torture: setup  ## every fault a run must survive, at full size (hours)
	@OMP_NUM_THREADS=1 OMP_WAIT_POLICY=PASSIVE $(BIN)/python -m tests.faults.torture

# Small changes of the source, each of which a test must notice; a part of the list: ONLY="memory/".
mutants: setup  ## some 600 small changes of the source: each must make a test fail (an hour)
	@$(BIN)/python -m tests.mutants.run --only "$(ONLY)" $(if $(ONLY),,--out results/mutants.json)

# After a change that alters results on purpose, and says so in CHANGELOG.md.
golden: setup  ## renew what tests/agents/test_golden.py compares with
	@$(BIN)/python tests/agents/test_golden.py --renew

docs: $(DOCS_READY)  ## the site of the documents, in build/site
	@$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going -b html docs build/site
	@echo "build/site/index.html"

examples: setup  ## run everything in examples/ at a small size
	@$(BIN)/pytest tests/test_examples.py tests/test_site.py::test_the_notebook_runs_from_its_first_cell_to_its_last

# Source archive and wheel, checked, installed in a clean environment per extra, and used there; ONLY="none report": some.
dist: setup  ## build the release into dist/ and try it (minutes)
	@PIP_CONSTRAINT=constraints.txt $(BIN)/python -m tests.release $(ONLY)

# Known weaknesses of the packages in constraints.txt; asks a database on the network.
audit: setup  ## look the installed versions up in the database of known weaknesses (needs a network)
	@$(PIP) install --quiet pip-audit
	@$(BIN)/python -m pip_audit --skip-editable --requirement constraints.txt --no-deps --disable-pip

lint: setup  ## check style and format
	@$(BIN)/ruff check . && $(BIN)/ruff format --check .

format: setup  ## format code
	@$(BIN)/ruff check --fix --quiet . ; $(BIN)/ruff format .

types: setup  ## check types
	@$(BIN)/mypy src tests $(wildcard benchmarks)  # what has no tests rots unnoticed

# Every CPU target as a ratio against its peer, in less than 15 minutes; OUT=... names the JSON file.
bench: $(BENCH_READY)  ## CPU rows against their peers (15 minutes)
	@$(BIN)/python benchmarks/bench.py --out $(if $(filter command,$(firstword $(origin OUT))),$(OUT),bench.json)

# What learning costs against the number of trials, on a CUDA machine.
bench-gpu: setup  ## cost against the number of trials, on a CUDA machine
	@$(BIN)/python benchmarks/learner_benchmark.py --device cuda --trials 1 4 16 40 64 --out bench-gpu-learner.json
	@$(BIN)/python benchmarks/population_benchmark.py --device cuda --trials 1 4 16 40 64 --out bench-gpu-population.json

setup: $(READY)  ## make .venv

$(BENCH_READY): $(READY)
	@PIP_CONSTRAINT=constraints.txt $(PIP) install --quiet -e ".[all,bench]"
	@touch $@

$(DOCS_READY): $(READY)
	@PIP_CONSTRAINT=constraints.txt $(PIP) install --quiet -e ".[docs]"
	@touch $@

# By digest: torch for CPUs alone, where the index has it, and all that the lock holds. By version, and only where the
# ordinary torch asks for it: CUDA's libraries.
$(READY): pyproject.toml constraints.txt requirements.lock
	@echo "Setting up .venv (once; a few minutes) ..."
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(PIP) install --quiet --require-hashes --no-deps -r requirements-cpu.lock 2>/dev/null || true
	@$(PIP) install --quiet --require-hashes --no-deps -r requirements.lock
	@$(PIP) install --quiet --no-deps --no-build-isolation -e .
	@$(PIP) check >/dev/null || PIP_CONSTRAINT=constraints.txt $(PIP) install --quiet -e ".[all,dev]"
	@touch $@

# Asks the index that pip is set up with; docs/reliability.md. No `setup` before it: the lock may be what does not fit.
lock:  ## renew requirements.lock after a change of pyproject.toml or constraints.txt (needs a network)
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@PIP_CONSTRAINT=constraints.txt $(PIP) install --quiet packaging
	@$(BIN)/python tools/lock.py

help:  ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sort | awk -F ':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'
