# Two commands on a fresh machine: `make demo` and `make test`. Each sets up its own .venv first.
PYTHON ?= python3
BIN := .venv/bin
INSTALLED := $(BIN)/tsadapt

.PHONY: setup demo browser test check format docs bench clean

setup: $(INSTALLED)

# The command is what says that the package is installed: pip uninstall takes it away. Everything installed goes through
# constraints.txt, what builds the package included.
$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(0 if v >= (3, 11) else f"tsadapt needs Python 3.11 or newer, found {v[0]}.{v[1]}. Name one with: make PYTHON=python3.12")'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	PIP_CONSTRAINT=constraints.txt $(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	touch $@

demo: setup
	$(BIN)/tsadapt demo

# The tests of the report open it in Chromium. Without it, and where it cannot be installed, they are skipped.
browser:
	@sh tests/report/install_chromium.sh

# Tests side by side, each on one thread: threads that compete for cores are many times slower.
test: setup browser
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --maxprocesses 8

check: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: setup
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: setup
	$(BIN)/python -m tsadapt.report.tables
	$(BIN)/python -m paper.make_docs

bench: setup
	$(BIN)/python -m benchmarks.loss

clean:
	rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
