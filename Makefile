# Everything below makes its own virtual environment, once, from a Python 3.11 or newer.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# Python compiles what is imported, which is a small part of what is installed, and keeps it: without
# that, every worker and every command that a test starts would compile it again.
export PYTHONDONTWRITEBYTECODE :=
INSTALL := -m pip --disable-pip-version-check install --quiet --no-compile
PIP := $(BIN)/python $(INSTALL)
# The oldest versions have ready-made packages for Python 3.11 only.
OLDEST_PYTHON ?= $(or $(shell command -v python3.11),$(PYTHON))
OLDEST_VENV ?= .venv-oldest
OLDEST_TESTS := tests/cli/test_screen.py tests/cli/test_settings.py tests/cli/test_stops.py tests/cli/test_aggregate.py tests/data/test_cluster.py \
	tests/cli/test_cli.py::test_default_list_treats_whoever_is_not_harmed \
	tests/cli/test_cli.py::test_chunks_fit_the_same_from_two_tables_and_from_four \
	tests/data/test_files.py tests/data/test_dask.py tests/federated/test_sums_file.py tests/federated/test_warehouse.py::test_names_that_are_no_words_are_quoted_in_every_dialect \
	tests/federated/test_warehouse.py::test_what_queries_return_is_what_rows_add_up_to \
	tests/federated/test_warehouse.py::test_tables_on_a_server_are_read_and_added_up_there \
	tests/model/test_box_qp.py tests/plot tests/estimators/test_persist.py \
	tests/estimators/test_scikit_learn.py
SOURCES := pyproject.toml constraints.txt

.PHONY: help demo test pytest test-slow test-oldest test-browser coverage lint format benchmark accuracy coverage-study verdict-study paper paper-small figures docs files walk wheel sdist release-check workflows reliability kills fuzz load licences audit clean

help:
	@echo "make demo        the whole job on a simulated campaign, under two minutes"
	@echo "make test        lint, types, import contract, tests and doctests"
	@echo "make coverage    the same tests, and which lines of the package none of them runs"
	@echo "make test-slow   the tests marked slow as well"
	@echo "make test-oldest some of the tests with the oldest supported versions"
	@echo "make test-browser the report in a real browser; needs chromium and chromedriver"
	@echo "make benchmark   every script in benchmarks/ that takes minutes"
	@echo "make accuracy    every estimator against the truth, 55 minutes on two cores"
	@echo "make coverage-study  how often intervals of evaluations cover the truth, hours"
	@echo "make verdict-study   how far the verdict of check and the plans of plan-study can be trusted"
	@echo "make paper       section 6 of the paper again, to docs/paper.md, an hour on one core"
	@echo "make paper-small the same on tiny tables, to build/paper, under two minutes; SEED=1"
	@echo "make figures     draw the pictures of the documentation again"
	@echo "make docs        build the documentation in build/docs; a warning is an error"
	@echo "make files       what each file is for"
	@echo "make walk        which files and functions the main commands enter"
	@echo "make wheel       the package for any machine and any Python from 3.11 on, tried by the demo"
	@echo "make sdist       the source archive, installed and tried on its own"
	@echo "make release-check all that a release is made of: wheel, source archive, their data, licences"
	@echo "make reliability kills, fuzzers, load and faults, an hour (make kills, fuzz, load: a part)"
	@echo "make licences    whether every dependency has a licence that we accept"
	@echo "make audit       known weaknesses of the dependencies; needs the network"
	@echo "make workflows   check the workflow files"
	@echo "make format      format the code"

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

$(VENV)/.docs: $(BIN)/python $(SOURCES)
	$(PIP) --constraint constraints.txt --editable '.[all,docs]'
	@touch $@

demo: $(VENV)/.demo
	$(BIN)/unjoined demo --out unjoined-demo --force

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

# With `make -j` both at once.
test: lint pytest

pytest: $(VENV)/.test
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist worksteal

# Apart from `make test`, as it takes half as long again.
coverage: $(VENV)/.test
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist worksteal --cov --cov-report=term --cov-fail-under=95
	$(BIN)/coverage report --include='*/unjoined/model/*,*/unjoined/federated.py' --fail-under=94

$(OLDEST_VENV)/.test: $(SOURCES) constraints-oldest.txt
	@$(OLDEST_PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' \
		|| { echo "Python 3.11 is needed; set OLDEST_PYTHON=/path/to/it"; exit 1; }
	$(OLDEST_PYTHON) -m venv $(OLDEST_VENV)
	$(OLDEST_VENV)/bin/python $(INSTALL) --constraint constraints-oldest.txt --editable '.[cli,plot,dask,warehouse]' pytest duckdb-extension-postgres-scanner
	@touch $@

# Old versions warn about each other, which does not count as a failure. Torch is not installed
# here, and one estimator alone goes through the checks of scikit-learn.
test-oldest: $(OLDEST_VENV)/.test
	OMP_NUM_THREADS=1 $(OLDEST_VENV)/bin/python -m pytest -q -o filterwarnings=default \
		-k "(not Neural and not Rowwise) or (RowwiseMinMax and linear and not critic)" $(OLDEST_TESTS)

test-slow: $(VENV)/.test
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist worksteal -m "slow"

# A session of its own, so that `make test` needs no browser.
test-browser: $(VENV)/.test
	$(BIN)/python -m pytest -m browser tests/report

benchmark: $(VENV)/.test
	@for script in $(filter-out $(addprefix benchmarks/,accuracy.py against.py coverage.py planner.py populations.py problems.py sensitivity.py trials.py verdict.py),$(wildcard benchmarks/*.py)); do \
		echo "== $$script"; $(BIN)/python $$script || exit 1; done

# Resumes from finished draws; an hour on one core.
verdict-study: $(VENV)/.test
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/verdict.py --out benchmarks/results/verdict.json
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/planner.py --out benchmarks/results/planner.json
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/populations.py --out benchmarks/results/populations.json

# Resumes from the draws in the file; hours on one core.
coverage-study: $(VENV)/.test
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/coverage.py --out benchmarks/results/coverage.json
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/sensitivity.py --out benchmarks/results/sensitivity.json

accuracy: $(VENV)/.test
	$(BIN)/python benchmarks/accuracy.py

# Section 6 of the paper, which takes an hour on one core; goes on from finished trials.
paper: $(VENV)/.test
	$(BIN)/python -m studies.paper all --trials 50 --seed 1 --out docs
	$(BIN)/python -m studies.paper all --ridges --trials 50 --seed 1 --out docs

paper-small: $(VENV)/.test
	$(BIN)/python -m studies.paper synthetic --small --seed $(or $(SEED),0) --out build/paper

figures: $(VENV)/.test
	@for script in docs/examples/*/*.py; do echo "== $$script"; $(BIN)/python $$script docs/images || exit 1; done

# Against GitHub's own schema, and for what an attacker could use.
workflows: $(BIN)/python
	$(PIP) --editable '.[workflows]'
	$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(BIN)/zizmor --offline --quiet --config .github/zizmor.yml .github/workflows

docs: $(VENV)/.docs
	$(BIN)/codespell README.md CONTRIBUTING.md SECURITY.md docs/*.md docs/guide docs/notebooks/*.py src studies
	$(BIN)/python tools/prose.py
	$(BIN)/python tools/notebooks.py
	$(BIN)/python -m sphinx -W --keep-going -b html -d build/doctrees docs build/docs
	@test -s build/docs/llms.txt && test -s build/docs/guide/start.md
	@echo "open build/docs/index.html"

files: $(BIN)/python
	@$(BIN)/python tools/files.py

walk: $(VENV)/.test
	$(BIN)/python tools/walk.py

# Kills, fuzzers, load and faults; an hour on two cores. tests/README.md quotes the results.
reliability: kills fuzz load

kills: $(VENV)/.test
	OMP_NUM_THREADS=1 $(BIN)/python tools/kills.py --kills 25 --out benchmarks/results/kills.json

# Guided by coverage where atheris has a package for this Python.
fuzz: $(VENV)/.test
	-$(PIP) atheris
	OMP_NUM_THREADS=1 $(BIN)/python tools/fuzz.py --runs 2000 --out benchmarks/results/fuzz.json

load: $(VENV)/.test
	OMP_NUM_THREADS=1 $(BIN)/python tools/load.py --out benchmarks/results/load.json

# What users install. A licence that is not on the list, or a known weakness, is an error.
LICENCES := BSD;MIT;Apache;PSF;Python;ISC;MPL;HPND;Unlicense;CC0;0BSD;Zlib
licences: $(VENV)/.test
	$(PIP) --constraint constraints.txt --editable '.[release]'
	$(BIN)/pip-licenses --from=mixed --partial-match --allow-only='$(LICENCES)' --summary \
		--packages $$($(BIN)/python tools/dependencies.py | grep -v '^skops$$')  # whose licence file says MIT

# Weaknesses are listed on stdout; if it fails with nothing there, nothing was looked up.
audit: $(VENV)/.test
	$(PIP) pip-audit
	@list=$$(mktemp) && $(BIN)/python tools/dependencies.py --pins > $$list; \
	found=$$($(BIN)/pip-audit --strict --disable-pip --no-deps --requirement $$list); end=$$?; rm -f $$list; \
	if [ $$end -eq 0 ]; then echo "no known weakness"; exit 0; fi; \
	if [ -n "$$found" ]; then echo "$$found"; echo "These packages have known weaknesses: take newer versions in constraints.txt."; \
	else echo "Nothing was audited: the list of weaknesses could not be read. Run make audit where there is a network."; fi; \
	exit 1

# One after the other, as all of them use build/ and one environment.
release-check:
	$(MAKE) wheel
	$(MAKE) sdist
	$(MAKE) licences
	$(BIN)/twine check --strict dist/unjoined-*
	@echo "ready to be published:"; ls -l dist/unjoined-*

# Unpacked, built and tried as somebody does who has the source archive alone.
sdist: $(BIN)/python $(SOURCES)
	rm -rf build/sdist dist/unjoined-*.tar.gz
	$(PIP) --constraint constraints.txt --editable '.[release]'
	$(BIN)/python -m build --sdist --outdir dist . > /dev/null
	$(PYTHON) -m venv --clear build/sdist
	build/sdist/bin/python $(INSTALL) --constraint constraints.txt "$$(ls $(CURDIR)/dist/unjoined-*.tar.gz)[cli,plot]" pytest
	cd build && sdist/bin/unjoined --version && sdist/bin/unjoined demo --rows 500 --out sdist-demo --force
	cp -r tests/reliability/golden tests/reliability/test_golden.py build/sdist/
	cd build/sdist && bin/python -m pytest -q test_golden.py

# In an environment of its own: what is tried out is what was packed.
wheel: $(BIN)/python $(SOURCES)
	rm -rf build dist/unjoined-*.whl
	$(BIN)/python -m pip --disable-pip-version-check wheel --quiet --no-deps --wheel-dir dist .
	$(PYTHON) -m venv --clear build/wheel
	build/wheel/bin/python $(INSTALL) --constraint constraints.txt \
		"$$(ls $(CURDIR)/dist/unjoined-*-py3-none-any.whl)[cli,plot]"
	cd build && wheel/bin/python -c "import unjoined; print(unjoined.__file__)"
	cd build && wheel/bin/unjoined demo --rows 500 --out wheel-demo
	@ls dist/unjoined-*.whl

format: $(VENV)/.test
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) $(OLDEST_VENV) build dist unjoined-demo .coverage .mypy_cache .pytest_cache .ruff_cache
