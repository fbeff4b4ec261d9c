# Needs make and python3 (3.11 or newer); everything else goes into .venv.
PYTHON ?= python3
BIN := .venv/bin
OUT := out

.DEFAULT_GOAL := help
.PHONY: help run test check bench wheel clean

help: ## show this list
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

run: $(BIN)/sapbert ## link some mentions to MeSH, with the encoder and the index that come along
	$(BIN)/sapbert link "heart attack" "HCQ" "high blood sugar" -k 2 --format table

test: .venv/.dev ## run the tests
	$(BIN)/pytest -n auto

check: .venv/.dev ## lint, types and layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: .venv/.dev ## measure speed and memory; results go to benchmarks/results (takes minutes)
	$(BIN)/python benchmarks/read_umls.py

wheel: .venv/.dev ## build the wheel and link with it in a new environment that has no torch
	$(BIN)/python scripts/check_wheel.py $(OUT)

clean: ## remove what make made
	rm -rf .venv $(OUT)

$(BIN)/sapbert: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "sapbert needs Python 3.11 or newer; try make PYTHON=python3.12")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable .
	@touch $@

.venv/.dev: $(BIN)/sapbert
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $@
