# Needs make and python3 (3.11 or newer); everything else is installed into .venv.
PYTHON ?= python3
BIN := .venv/bin
OUT := out
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.DEFAULT_GOAL := help
.PHONY: help run test test-slow torture mutants check docs bench wheel lock clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

run: $(BIN)/sapbert ## link some mentions to MeSH with the bundled encoder and index
	$(BIN)/sapbert link "heart attack" HCQ Plaquenil "tummy ache" diabetis Herzinfarkt "hart atack" MS -k 1 --format table

test: .venv/.dev ## run the tests, except the slow ones
	$(BIN)/pytest -n auto --dist worksteal

test-slow: .venv/.dev ## run the slow tests
	$(BIN)/pytest -n auto --dist worksteal -m slow

torture: .venv/.dev ## kill commands, damage artifacts and mutate inputs at random; continues where it stopped
	$(BIN)/python scripts/torture.py $(OUT)/torture --kills 100 --damages 1000 --inputs 20000

mutants: .venv/.dev ## put known faults into a copy of the package and count those that tests find (takes minutes)
	$(BIN)/python scripts/mutants.py --sample 20

check: .venv/.dev ## lint, types and layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: .venv/.dev ## measure reading of UMLS; results go to benchmarks/results (takes minutes)
	$(BIN)/python benchmarks/read_umls.py

docs: .venv/.dev ## build the documentation site into $(OUT)/docs
	$(BIN)/sphinx-build -W --keep-going -b html docs $(OUT)/docs

wheel: .venv/.dev ## build the wheel and link with it in a new environment without torch
	$(BIN)/python scripts/check_wheel.py $(OUT)

lock: .venv/.dev ## resolve dependencies again and write requirements/*.txt
	$(PIP) uv
	PATH=$(BIN):$$PATH $(BIN)/python scripts/lock.py

clean: ## remove .venv and the output folder
	rm -rf .venv $(OUT)

$(BIN)/sapbert: pyproject.toml requirements/run.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "sapbert needs Python 3.11 or newer; try make PYTHON=python3.12")'
	$(PYTHON) -m venv .venv
	$(PIP) --require-hashes --no-deps --requirement requirements/run.txt
	$(PIP) --no-deps --editable .
	@touch $@

# Dependencies of torch that are not in dev.txt are those of its CUDA build.
.venv/.dev: $(BIN)/sapbert requirements/dev.txt requirements/torch.txt
	$(PIP) --require-hashes --no-deps --requirement requirements/dev.txt
	$(PIP) --requirement requirements/torch.txt
	@touch $@
