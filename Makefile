# Everything is done by the scripts in scripts/, each of which explains itself with --help or at its top.
#
# PYTHON chooses the interpreter of .venv: a version (3.14) or a path. Without it .venv keeps the
# one it has, and a new one gets the preferred one (scripts/find-python).

# EXTRAS names what `make build` brings besides: bench,otlp,reload,top, or some of them.
#
# WHEELS names what `make wheels` builds: cp313-x86_64,sdist for example, all without it.

PYTHON ?=
EXTRAS ?=
WHEELS ?=

.PHONY: help demo lab test test-slow test-all witness lint fuzz bench bench-server screenshot docs build wheels clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile
	@echo
	@echo "  make build PYTHON=3.14 (or a path) builds for that interpreter."
	@echo "  make wheels WHEELS=cp313-x86_64 builds one of them; sdist are the source distributions."
	@echo "  make build EXTRAS=bench,top brings the packages of these extras too (also otlp, reload)."

demo: ## Serve the Flask shop under load for 20 seconds and print where its threads' time went
	@scripts/build .venv "$(PYTHON)" examples/shop/requirements.txt
	@.venv/bin/python examples/shop/demo.py

test: ## Run the fast tests, those of the lab where it or what it uses changed (5 minutes)
	@scripts/test fast

test-slow: ## Run the slow tests on 3.13, and those of free-threaded 3.13; with `make test` what CI runs
	@scripts/test slow

test-all: ## Run every test on 3.10 to 3.15 and free-threaded 3.13 and 3.15 (hours)
	@scripts/test all

witness: ## Check the meter beside a CPython that counts what it does (first builds it: 4 minutes; then 1)
	@scripts/get-pythons 3.13w
	@scripts/build .venvs/3.13w 3.13w
	@.venvs/3.13w/bin/python scripts/witness.py

lint: ## Check formatting, types, lints, layers and links
	@scripts/lint

fuzz: ## Fuzz everything that parses what a client sends (80 minutes)
	@scripts/fuzz --seconds 1200

bench: ## Measure what the meter costs and what the policies bring (40 minutes)
	@LAB=yes scripts/build .venv "$(PYTHON)" bench/requirements.txt
	@.venv/bin/python bench/run.py
	@.venv/bin/headway bench latency throughput countdown

bench-server: ## Measure headway serve beside other WSGI servers, which it installs (3 hours)
	@LAB=yes scripts/build .venv "$(PYTHON)" bench/requirements.txt
	@.venv/bin/python bench/install_peers.py
	@! scripts/find-python 3.13t >/dev/null || { LAB=yes scripts/build .venvs/3.13t 3.13t && .venvs/3.13t/bin/python bench/install_peers.py; }
	@.venv/bin/python bench/run.py server

screenshot: ## Take the documents' pictures of the dashboard, from a recording made for them (2 minutes)
	@scripts/build .venvs/3.13 3.13 tests/requirements.txt tests/requirements-dashboard.txt
	@.venvs/3.13/bin/python scripts/screenshot.py docs

docs: ## Build the site of the documents into site/
	@scripts/docs

build: ## Make .venv with .venv/bin/headway in it, and with the packages of EXTRAS
	@EXTRAS="$(EXTRAS)" scripts/build .venv "$(PYTHON)"

lab: ## Make .venv with headway-lab too: `headway bench`, `bench-compare` and `simulate`
	@LAB=yes EXTRAS="$(EXTRAS)" scripts/build .venv "$(PYTHON)"

wheels: ## Build the wheels of all versions for both architectures and C libraries, and the source distributions, into dist/
	@python=$$(scripts/find-python) && "$$python" scripts/wheels.py $(WHEELS)

clean: ## Remove what was built here (not the interpreters that scripts/get-pythons brought)
	rm -rf target .venv .venvs dist site web/node_modules python/headway/recorder/static .mypy_cache .ruff_cache .pytest_cache
	find . -name __pycache__ -prune -exec rm -rf {} +
