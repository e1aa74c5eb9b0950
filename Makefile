# Everything below makes its own virtual environment, once, from a Python 3.11 or newer.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet
SOURCES := pyproject.toml setup.py constraints.txt $(wildcard src/unjoined/_compiled/*.[ch])

.PHONY: help demo test test-slow lint format benchmark accuracy figures walk clean

help:
	@echo "make demo       the whole job on a simulated campaign, under two minutes"
	@echo "make test       lint, types, import contract, tests and doctests"
	@echo "make test-slow  the tests marked slow as well"
	@echo "make benchmark  every script in benchmarks/ but the next one"
	@echo "make accuracy   every estimator against the truth, about 90 minutes on two cores"
	@echo "make figures    the pictures of the documentation, anew"
	@echo "make walk       which files and functions the main commands enter"
	@echo "make format     format the code"

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Python 3.11 or newer is needed; set PYTHON=/path/to/it"; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: $(BIN)/python $(SOURCES)
	$(PIP) --constraint constraints.txt --editable '.[cli,plot]'
	@touch $@

$(VENV)/.test: $(BIN)/python $(SOURCES)
	$(PIP) --constraint constraints.txt --editable '.[test]'
	@touch $@ $(VENV)/.demo

demo: $(VENV)/.demo
	$(BIN)/unjoined demo --out unjoined-demo

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

test: lint
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist loadscope \
		-m "not slow and not network" --cov --cov-report=term
	$(BIN)/coverage report --include='src/unjoined/moments/*,src/unjoined/solve/*' --fail-under=100
	$(BIN)/coverage report --fail-under=95 > /dev/null

test-slow: $(VENV)/.test
	$(BIN)/python -m pytest -m "slow"

benchmark: $(VENV)/.test
	@for script in $(filter-out benchmarks/accuracy.py,$(wildcard benchmarks/*.py)); do \
		echo "== $$script"; $(BIN)/python $$script || exit 1; done

accuracy: $(VENV)/.test
	$(BIN)/python benchmarks/accuracy.py

figures: $(VENV)/.test
	@for script in docs/examples/*/*.py; do echo "== $$script"; $(BIN)/python $$script docs/images || exit 1; done

walk: $(VENV)/.test
	$(BIN)/python tools/walk.py

format: $(VENV)/.test
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) build unjoined-demo .coverage .mypy_cache .pytest_cache .ruff_cache
	rm -f src/unjoined/_compiled/*.so
