# Two commands do everything on a fresh machine: `make run` and `make test`. Both create .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check
PIP := $(INSTALL) --constraint constraints.txt
HASHED := $(INSTALL) --no-deps --require-hashes --requirement

.PHONY: run test test-long check clean coverage crosscheck crosscheck-queries docs wheel

run: $(VENV)/.ready
	$(BIN)/assay run

test: $(VENV)/.ready-dev check
	$(BIN)/python -m pytest -n 2 --dist worksteal

# Tests that take too long for every change, such as many more kills.
test-long: $(VENV)/.ready-dev
	$(BIN)/python -m pytest -n 2 --dist worksteal -m long

check: $(VENV)/.ready-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

clean:
	rm -rf $(VENV) runs report

# The share of lines that the tests reach; fails below the floor of pyproject.toml.
coverage: $(VENV)/.ready-dev
	$(BIN)/python -m pytest -n 2 --dist worksteal --cov --cov-report=term

# The wheel, as it is published: tests/core/test_wheel.py installs such a one and uses it outside a checkout.
wheel: $(VENV)/.ready-dev
	rm -rf dist
	$(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .
	du -h dist/*.whl

# Writes the generated pages and builds the documentation into build/docs; a warning is an error.
docs: $(VENV)/.ready-dev
	$(BIN)/python -m tools.attack_pages
	$(BIN)/python -m tools.api_page
	$(BIN)/python -m benchmarks.cost_model
	$(BIN)/python -m tools.page_outputs
	$(BIN)/python -m tools.notebooks
	$(BIN)/zensical build --strict

# docs/crosscheck.md: our attacks compared with other libraries, in about a quarter of an hour on two cores.
crosscheck: $(VENV)/.ready-dev
	$(PIP) --no-deps --requirement benchmarks/peers.txt
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.crosscheck

# docs/queries.md: black-box attacks compared at equal queries, in about twenty minutes on two cores.
crosscheck-queries: $(VENV)/.ready-dev
	$(PIP) --no-deps --requirement benchmarks/peers.txt
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.crosscheck_queries

# Every file that is installed has its hash in locks/, written by `python -m tools.lock`; torch is pinned without one,
# because its build depends on the machine. Packages that a lock does not list, on another system, are installed by version.
$(VENV)/.ready: pyproject.toml constraints.txt locks/run.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(HASHED) locks/run.txt
	$(PIP) torch
	$(PIP) --no-build-isolation --editable .
	touch $@

# The libraries that tests compare with declare dependencies that we do not want (one pins an old requests, one installs
# torchvision), so they are installed without them; tests/oracles.txt lists what they really import.
$(VENV)/.ready-dev: $(VENV)/.ready locks/test.txt locks/oracles.txt
	$(HASHED) locks/test.txt
	$(PIP) --no-build-isolation --editable '.[dev]'
	$(HASHED) locks/oracles.txt
	touch $@
