# Everything a developer needs, on a machine with Python 3.11 and make.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.PHONY: study test check format wheel docs linkcheck bench scale peers clean

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

docs: $(READY)
	$(BIN)/python -m sphinx -q -W --keep-going -n -d build/doctrees -c docs . build/docs

# Asks every external link, so it needs the network; make docs checks all others.
linkcheck: $(READY)
	$(BIN)/python -m sphinx -q -n -b linkcheck -d build/doctrees -c docs . build/linkcheck

# The stamp makes every target start at once while the pins have not changed.
$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[test,docs]'
	touch $@

# Everything in benchmarks/README.md, one thing after the other; hours. Peers: make peers first.
bench: $(READY)
	$(BIN)/python benchmarks/steps.py
	$(BIN)/python benchmarks/largest_batch.py
	$(BIN)/python benchmarks/calibration.py --output benchmarks/results/calibration.csv
	$(BIN)/python benchmarks/sweep.py --output benchmarks/results/sweep.csv
	$(BIN)/python benchmarks/data.py
	$(BIN)/python benchmarks/figures.py

# One to forty million rows, and a study on Ray: an hour, 20 GB of disk below build/.
scale: $(READY)
	mkdir -p build
	$(BIN)/python benchmarks/scale.py --folder build
	$(BIN)/python benchmarks/ray_study.py

peers: benchmarks/.peers/.ready

# Opacus and torch have an environment of their own.
benchmarks/.peers/.ready: benchmarks/peers/requirements.txt
	$(PYTHON) -m venv benchmarks/.peers
	benchmarks/.peers/bin/python -m pip install --quiet --disable-pip-version-check -r $<
	touch $@

clean:
	rm -rf .venv benchmarks/.peers build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache
