# The two commands: `make demo` runs a real pipeline, `make test` runs every check and test.
# Both make their own environment in .venv; set PYTHON to choose the interpreter (3.10 or later).

SHELL := /bin/bash
VENV ?= .venv
BIN := $(VENV)/bin
WORKERS ?= 2

.PHONY: help demo test lint docs unit bench clean

help:
	@echo "make demo    run a real pipeline on this machine and show its graph, progress and result"
	@echo "make test    lint, types, layers, docs and every test (what CI runs)"
	@echo "make lint    ruff, mypy --strict, import layers"
	@echo "make docs    build the documentation into site/"
	@echo "make unit    the tests alone, with coverage"
	@echo "make bench   the benchmarks, each beside a public reference"
	@echo "make clean   remove what the others made, the environment included"

demo: $(VENV)/.base
	@$(BIN)/python examples/keeling.py

test: lint docs unit

lint: $(VENV)/.dev
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --quiet --check . || { $(BIN)/ruff format --check . ; exit 1; }
	@echo "ruff: no problems"
	@$(BIN)/mypy
	@$(BIN)/lint-imports | tail -n 3

docs: $(VENV)/.dev
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict
	@echo "docs: built into site/"

unit: $(VENV)/.dev $(VENV)/.services
	@PATH="$(abspath $(BIN)):$$PATH" .ci/unit $(WORKERS)

bench: $(VENV)/.bench
	@for file in benchmarks/bench_*.py; do echo "== $$file"; $(BIN)/python "$$file" || exit 1; done

clean:
	rm -rf $(VENV) site build dist .coverage .coverage.* .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(VENV)/.python:
	@VENV="$(VENV)" .ci/environment

$(VENV)/.base: $(VENV)/.python pyproject.toml
	@echo "Installing dagkit into $(VENV)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

$(VENV)/.dev: $(VENV)/.python pyproject.toml
	@echo "Installing dagkit and what its tests need into $(VENV) (a minute or two)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@ $(VENV)/.base

$(VENV)/.services: $(VENV)/.python .ci/services
	@VENV="$(VENV)" .ci/services
	@touch $@

$(VENV)/.bench: $(VENV)/.dev
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev,bench]'
	@touch $@
