# Everything a developer needs, on a machine with Python 3.11 and make.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.PHONY: study test check format wheel clean

study: $(READY)
	$(BIN)/dpcompare run-study quickstart

test: $(READY)
	$(BIN)/pytest -n 2

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

wheel: $(READY)
	$(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .

# The stamp makes every target start at once while the pins have not changed.
$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[test]'
	touch $@

clean:
	rm -rf .venv build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache
