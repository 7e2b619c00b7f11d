# `make` prints this help. Everything a target needs is set up by the target.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
DETENT_DATA_DIR ?= .detent

.DEFAULT_GOAL := help
.PHONY: help run test test-long check lint format lock bench chaos screenshots docs docs-cli openapi clean bench-looking

help:  ## Show this help
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(READY): requirements/dev.lock pyproject.toml
	@echo "setting up .venv …"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "detent needs Python 3.11 or newer: run make PYTHON=/path/to/python3.11"; exit 1; }
	@$(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check uv 2>/dev/null || $(BIN)/python -m pip install --quiet uv
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --require-hashes -r requirements/dev.lock
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps -e .
	@touch $@

run: $(READY)  ## Start detent with a small demo (Ctrl-C stops everything)
	@$(BIN)/detent serve --demo --data-dir $(DETENT_DATA_DIR)

test: $(READY)  ## Run the tests (short profiles)
	@$(BIN)/python -m pytest -n 4 -m "not long" tests

test-long: $(READY)  ## Run all tests with full counts, and those with processes also through a pooler, and with the version before
	@$(BIN)/python -m pytest -n 2 --timeout 3600 tests
	@DETENT_TEST_POOLER=1 $(BIN)/python -m pytest -n 2 --timeout 3600 tests/system tests/session
	@previous=$$($(BIN)/python chaos/versions.py) && DETENT_TEST_PREVIOUS=$$previous $(BIN)/python -m pytest -n 2 --timeout 3600 tests/system

check: lint test  ## What CI runs

lint: $(READY)  ## Formatting, lint, types, import layers
	@$(BIN)/ruff format --check src tests
	@$(BIN)/ruff check src tests
	@$(BIN)/mypy
	@$(BIN)/lint-imports

format: $(READY)  ## Format the code
	@$(BIN)/ruff format src tests
	@$(BIN)/ruff check --fix src tests

bench: $(READY)  ## Measure the loop, registration and the schedule engine on a throw-away database
	@$(BIN)/detent bench loop
	@$(BIN)/detent bench register
	@$(BIN)/detent bench cron

bench-looking: $(READY)  ## Measure the dashboard with a million jobs, and fifty browsers beside a busy loop
	@$(BIN)/python tools/looking.py overview
	@$(BIN)/python tools/looking.py streams

screenshots: $(READY)  ## Photograph every view of the dashboard into build/screenshots, and those of the README
	@$(BIN)/python tools/screenshots.py

chaos: $(READY)  ## Break clusters of real processes in every way we know, with the promised bounds (20 minutes)
	@$(BIN)/python chaos/all.py

docs: docs-cli  ## Build the manual into build/site
	@$(BIN)/python tests/docs/reference_pages.py
	@$(BIN)/uv venv --quiet --allow-existing --python $(BIN)/python .venv/docs
	@$(BIN)/uv pip install --quiet --python .venv/docs/bin/python --group docs
	@.venv/docs/bin/zensical build --clean --strict

docs-cli: $(READY)  ## Write the pages that are made from the code: the commands, the schema of job files
	@$(BIN)/python -m detent.cli.reference > docs/cli.md
	@$(BIN)/python -m detent.declarative.schema > docs/jobs.schema.json

openapi: $(READY)  ## Write docs/openapi.json and docs/problems.md anew, and tell what breaks clients
	@$(BIN)/python tests/api/openapi_file.py

lock: $(READY)  ## Resolve dependencies anew into requirements/dev.lock
	@$(BIN)/uv pip compile --quiet --generate-hashes --no-header --no-annotate --group dev --extra embedded --extra zookeeper --extra redis pyproject.toml -o requirements/dev.lock

clean:  ## Remove what the targets above made (not the data in .detent)
	@rm -rf .venv .mypy_cache .ruff_cache .hypothesis .import_linter_cache .cache dist build
