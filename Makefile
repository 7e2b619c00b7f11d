# `make` prints this help. Everything a target needs is set up by the target.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
PEERS_READY := .venv/peers/.ready
ENQUEUE_PEERS_READY := .venv/enqueue-peers/.ready
CLIENTS_READY := .venv/http-clients/.ready
SDKS_READY := .venv/sdks/.ready
BENCH_PEERS ?=
BENCH_ENQUEUE_PEERS ?=
PEERS_PYTHON ?= 3.13
BENCH_HTTP_CLIENTS ?=
COMPARE_SDKS ?=
AUDIT ?=
DETENT_DATA_DIR ?= .detent

.DEFAULT_GOAL := help
.PHONY: help run test test-long check lint format lock bench bench-smoke bench-peers bench-enqueue-peers bench-http-clients bench-dashboard compare-sdks chaos screenshots docs docs-cli openapi sbom audit-dependencies dist clean

help:  ## Show this help
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

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

# Every test process loads the same modules: compiled once, they load three times as fast.
test: $(READY)  ## Run the tests (short profiles)
	@PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n 4 --dist worksteal -m "not long" tests

test-long: $(READY)  ## Run all tests with full counts, and those with processes also through a pooler, and with the version before
	@$(BIN)/python -m pytest -n 4 --dist worksteal --timeout 3600 tests
	@DETENT_TEST_POOLER=1 $(BIN)/python -m pytest -n 4 --dist worksteal --timeout 3600 tests/system tests/session
	@previous=$$($(BIN)/python -m chaos.versions) && DETENT_TEST_PREVIOUS=$$previous $(BIN)/python -m pytest -n 4 --dist worksteal --timeout 3600 tests/system

check: lint test  ## What CI runs

lint: $(READY)  ## Formatting, lint, types, import layers
	@$(BIN)/ruff format --check src tests benchmarks chaos tools
	@$(BIN)/ruff check src tests benchmarks chaos tools
	@$(BIN)/mypy
	@$(BIN)/lint-imports

format: $(READY)  ## Format the code
	@$(BIN)/ruff format src tests benchmarks chaos tools
	@$(BIN)/ruff check --fix src tests benchmarks chaos tools

bench: $(READY)  ## Measure everything on throw-away databases, beside the raw limits of this machine (half an hour)
	@$(BIN)/detent bench loop
	@$(BIN)/detent bench latency
	@$(BIN)/detent bench hot-second
	@$(BIN)/detent bench growth
	@$(BIN)/detent bench register --jobs 1000000
	@$(BIN)/detent bench http
	@$(BIN)/detent bench python
	@$(BIN)/detent bench enqueue
	@$(BIN)/detent bench failover
	@$(BIN)/detent bench topics
	@$(BIN)/detent bench transports
	@$(BIN)/detent bench scaling
	@$(BIN)/detent bench idle
	@$(BIN)/detent bench cron

bench-dashboard: $(READY)  ## Measure the dashboard with a million jobs, and with fifty browsers during a busy loop
	@$(BIN)/python -m tools.dashboard_bench overview
	@$(BIN)/python -m tools.dashboard_bench streams

screenshots: $(READY)  ## Screenshots of every dashboard page in build/screenshots, and those of the README
	@$(BIN)/python -m tools.screenshots

# A third of what is usual on a quiet machine: what halves the loop's speed is seen, what a busy neighbour does is not.
bench-smoke: $(READY)  ## A short run of the loop that fails when it falls far behind the raw limit of the same run
	@$(BIN)/detent bench loop --jobs 20000 --rounds 3 --at-least 0.12

$(PEERS_READY): $(READY) requirements/peers.lock
	@echo "setting up .venv/peers …"
	@$(BIN)/uv venv --quiet --allow-existing --python $(BIN)/python .venv/peers
	@$(BIN)/uv pip install --quiet --python .venv/peers/bin/python --require-hashes -r requirements/peers.lock
	@touch $@

bench-peers: $(PEERS_READY)  ## Measure detent beside its peers, in one run (half an hour; BENCH_PEERS="--only detent pgq")
	@$(BIN)/python benchmarks/peers/run.py --peers-python .venv/peers/bin/python $(BENCH_PEERS)

# Oban needs a newer Python than detent: all queues are measured on that one.
$(ENQUEUE_PEERS_READY): $(READY) requirements/enqueue-peers.lock
	@echo "setting up .venv/enqueue-peers …"
	@$(BIN)/uv venv --quiet --allow-existing --python $(PEERS_PYTHON) .venv/enqueue-peers || { echo "Oban needs Python 3.12 or newer: run make bench-enqueue-peers PEERS_PYTHON=/path/to/python3.13"; exit 1; }
	@$(BIN)/uv pip install --quiet --python .venv/enqueue-peers/bin/python --require-hashes -r requirements/enqueue-peers.lock
	@touch $@

bench-enqueue-peers: $(ENQUEUE_PEERS_READY)  ## Measure enqueuing beside other queues on PostgreSQL, in one run (6 minutes; BENCH_ENQUEUE_PEERS="--only detent oban")
	@$(BIN)/python benchmarks/peers/enqueue.py --peers-python .venv/enqueue-peers/bin/python $(BENCH_ENQUEUE_PEERS)

$(CLIENTS_READY): $(READY) requirements/http-clients.lock
	@echo "setting up .venv/http-clients …"
	@$(BIN)/uv venv --quiet --allow-existing --python $(BIN)/python .venv/http-clients
	@$(BIN)/uv pip install --quiet --python .venv/http-clients/bin/python --require-hashes -r requirements/http-clients.lock
	@touch $@

bench-http-clients: $(CLIENTS_READY)  ## Measure HTTP clients for the HTTP target beside each other
	@PYTHONPATH=src .venv/http-clients/bin/python benchmarks/http/clients.py --sink-python $(BIN)/python $(BENCH_HTTP_CLIENTS)

$(SDKS_READY): $(READY) requirements/sdks.lock
	@echo "setting up .venv/sdks …"
	@$(BIN)/uv venv --quiet --allow-existing --python $(BIN)/python .venv/sdks
	@$(BIN)/uv pip install --quiet --python .venv/sdks/bin/python --require-hashes -r requirements/sdks.lock
	@touch $@

compare-sdks: $(SDKS_READY)  ## Run every cell of the comparison with other SDKs and write its page (15 minutes; COMPARE_SDKS="--systems detent")
	@$(BIN)/python benchmarks/sdks/run.py --sdks-python .venv/sdks/bin/python $(COMPARE_SDKS)

chaos: $(READY)  ## Break clusters of real processes in every way we know, with the promised bounds (three quarters of an hour)
	@$(BIN)/python -m chaos.all

docs: docs-cli  ## Build the manual into build/site
	@$(BIN)/python -m tests.docs.reference_pages
	@$(BIN)/uv venv --quiet --allow-existing --python $(BIN)/python .venv/docs
	@$(BIN)/uv pip install --quiet --python .venv/docs/bin/python --group docs
	@.venv/docs/bin/zensical build --clean --strict

docs-cli: $(READY)  ## Write the pages that are made from the code: the commands, the schema of job files
	@$(BIN)/python -m detent.cli.reference > docs/cli.md
	@$(BIN)/python -m detent.declarative.schema > docs/jobs.schema.json

openapi: $(READY)  ## Write docs/openapi.json and docs/problems.md anew, and tell what breaks clients
	@$(BIN)/python -m tests.api.openapi_file

lock: $(READY)  ## Resolve dependencies anew into requirements/*.lock
	@$(BIN)/uv pip compile --quiet --generate-hashes --no-header --no-annotate --group dev --extra all pyproject.toml -o requirements/dev.lock
	@$(BIN)/uv pip compile --quiet --generate-hashes --no-header --no-annotate requirements/peers.in -o requirements/peers.lock
	@$(BIN)/uv pip compile --quiet --generate-hashes --no-header --no-annotate requirements/http-clients.in -o requirements/http-clients.lock
	@$(BIN)/uv pip compile --quiet --generate-hashes --no-header --no-annotate requirements/sdks.in -o requirements/sdks.lock
	@$(BIN)/uv pip compile --quiet --generate-hashes --no-header --no-annotate --python-version 3.12 requirements/enqueue-peers.in -o requirements/enqueue-peers.lock

sbom: $(READY)  ## Write the bill of materials (CycloneDX) of the runtime dependencies into dist
	@$(BIN)/python -m tools.sbom

audit-dependencies: $(READY)  ## Look for known vulnerabilities in the locked dependencies (AUDIT="--ignore-vuln ID")
	@$(BIN)/python -m tools.audit_dependencies $(AUDIT)

dist: $(READY)  ## Build the files of a release from the newest commit into dist: wheel, source archive, SBOM, SHA-256 sums
	@$(BIN)/python -m tools.release_files

clean:  ## Remove what the targets above made (not the data in .detent)
	@rm -rf .venv .mypy_cache .ruff_cache .hypothesis .import_linter_cache .cache dist build
