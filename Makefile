# Two commands for everyone: make demo, make test. They need Python 3.11 and make, nothing else.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV ?= .venv
BIN := $(VENV)/bin
CORE_INSTALLED := $(VENV)/.core-installed
INSTALLED := $(VENV)/.installed
DOCS_INSTALLED := $(VENV)/.docs-installed
# Two processes of one thread each: faster than one process whose products take both cores.
# A file's tests stay in one process, so that a module's fixtures are made once; files keep their
# order, which ends with short ones, so that neither process waits for the other. Each process and
# each command that a test starts reads compiled files, which takes a fraction of compiling them.
PYTEST := PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

# Real data, where it lies beside the project; then a missing file is a failure, not a skip.
DATA := $(abspath $(wildcard ../shared/data))
ifneq ($(DATA),)
export LEAKGAUGE_DATA ?= $(DATA)
endif

.PHONY: demo test test-all check format bench docs wheel wheel-check clean

# The package alone: the tools of its developers, such as Ray and NVFlare, are gigabytes.
demo: $(CORE_INSTALLED)
	$(BIN)/leakgauge demo

test: $(INSTALLED)
	$(PYTEST)

test-all: $(INSTALLED)
	$(PYTEST) -m "slow or not slow"

check: $(INSTALLED)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(PYTEST)

format: $(INSTALLED)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(INSTALLED)
	$(BIN)/python benchmarks/gradients.py
	$(BIN)/python benchmarks/inversion.py
	$(BIN)/python benchmarks/membership.py
	$(BIN)/python benchmarks/layers.py
	$(BIN)/python benchmarks/monitor.py
	$(BIN)/python benchmarks/inference.py

# Warnings are errors; notebooks run; a link that leads nowhere fails. Without real data.
docs: $(DOCS_INSTALLED)
	rm -rf build/docs build/docs-cache docs/generated
	env -u LEAKGAUGE_DATA OMP_NUM_THREADS=1 $(BIN)/python -m sphinx -b html -j 2 -E -W --keep-going -n \
		--quiet -d build/docs-cache docs build/docs
	$(BIN)/python docs/_ext/check_links.py build/docs
	@echo "documentation: build/docs/index.html"

wheel: $(INSTALLED)
	rm -rf dist
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir dist .

# The wheel alone, in an environment of its own, far from the sources: takes minutes.
wheel-check: wheel
	rm -rf build/wheel-check && $(PYTHON) -m venv build/wheel-check
	build/wheel-check/bin/python -m pip install --quiet -c constraints.txt dist/*.whl
	cd build && env -u PYTHONPATH wheel-check/bin/leakgauge demo --out wheel-check/demo
	test -s build/wheel-check/demo/report.html
	build/wheel-check/bin/python -m pip install --quiet --dry-run -c constraints.txt "$$(ls dist/*.whl)[all]"

clean:
	rm -rf $(VENV) build dist docs/generated .pytest_cache .mypy_cache .ruff_cache

$(CORE_INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e .
	touch $@

$(INSTALLED): $(CORE_INSTALLED)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e ".[dev]"
	touch $@

$(DOCS_INSTALLED): $(INSTALLED)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e ".[docs]"
	touch $@
