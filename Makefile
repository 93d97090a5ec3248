# Two commands: `make run` trains, `make test` checks. Both set up .venv first; see README.md.
GAME ?= freeway
AGENT ?= comper-single
FRAMES ?= 100000
SEED ?= 0
OUT ?= runs
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
BENCH_READY := .venv/.bench-ready

.PHONY: run test setup lint types bench
run: setup
	@$(BIN)/comper train $(GAME) --agent $(AGENT) --frames $(FRAMES) --seed $(SEED) --out $(OUT)

test: setup lint types
	@$(BIN)/pytest

lint: setup
	@$(BIN)/ruff check . && $(BIN)/ruff format --check .

types: setup
	@$(BIN)/mypy

# Every CPU target as a ratio against its peer, in less than 15 minutes; OUT=... names the JSON file.
bench: $(BENCH_READY)
	@$(BIN)/python benchmarks/bench.py --out $(if $(filter command,$(firstword $(origin OUT))),$(OUT),bench.json)

setup: $(READY)

$(BENCH_READY): $(READY)
	@PIP_CONSTRAINT=constraints.txt $(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[all,bench]"
	@touch $@

$(READY): pyproject.toml constraints.txt
	@echo "Setting up .venv (once; a few minutes) ..."
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@PIP_CONSTRAINT=constraints.txt $(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[all,dev]"
	@touch $@
