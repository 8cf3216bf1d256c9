SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules --no-print-directory
# Hundreds of interpreters start in a test run; where this is set each of them compiles every module again.
unexport PYTHONDONTWRITEBYTECODE

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# The first interpreter that is new enough; name another with `make PYTHON=...`.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo "$$p" && break; done)

CORE38 := supervisor/dflash_supervise/core supervisor/dflash_supervise/wire.py supervisor/dflash_supervise/agent \
	supervisor/dflash_supervise/link/remote_boot.py
PURE_TESTS := $(wildcard tests/unit tests/sim tests/contract)
# The longest first, which one worker then has for itself while the others share the rest.
ALL_TESTS := $(wildcard tests/e2e tests/integration tests/browser tests/sim tests/unit tests/meta tests/contract)
CORE_COVERAGE := --cov --cov-config=pyproject.toml --cov-fail-under=100
PYTEST := $(BIN)/python -m pytest
# Most tests wait for real processes, so four workers keep two cores busy; five were no quicker.
PARALLEL := -n 4 --dist worksteal
# A folder without tests is no failure: pytest says 5 for "nothing collected".
FOLDER = [ ! -d tests/$(1) ] || $(PYTEST) tests/$(1) $(ARGS) || [ $$? -eq 5 ]

.PHONY: help
help: ## Show this list.
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9-]+):[^#]*## /\1\t/' | \
		while IFS=$$'\t' read -r name text; do printf '  %-12s %s\n' "$$name" "$$text"; done
	@echo; echo '  Pass arguments to pytest with ARGS, for example: make integration ARGS="-k relay -x"'

.PHONY: system
system: ## Check tmux, sshd, a C compiler and chromium; install what is missing when root on Debian or Ubuntu.
	@sh tests/lab/system.sh python tmux ssh sshd gcc chromium

.PHONY: system-demo
system-demo: ## The same for what `make demo` needs: Python and tmux.
	@sh tests/lab/system.sh python tmux

.PHONY: system-python
system-python: ## The same for what every other target needs: Python with venv.
	@sh tests/lab/system.sh python

.PHONY: setup
setup: $(STAMP) ## Make .venv and install the project with every pinned dependency (nothing to do when it is current).

# Order-only: it runs each time and never makes the environment stale. It must end before the recipe below is
# expanded, which looks for the interpreter. What the product imports is compiled here and once; pip would compile all
# of torch, which takes as long as the installation.
$(STAMP): pyproject.toml constraints.txt | system-python
	@[ -n "$(PYTHON)" ] || { echo "setup: no Python 3.11 or newer found; install one or run make PYTHON=/path/to/python" >&2; exit 2; }
	@began=$$(date +%s); \
	[ -x $(BIN)/python ] || $(PYTHON) -m venv $(VENV); \
	PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_CONSTRAINT=constraints.txt \
		$(BIN)/python -m pip install --quiet --no-compile --editable '.[dev,trainer]'; \
	$(BIN)/python -c 'import dflash_supervise.cli.main, dflash_supervise.daemon.main, dflash_trainer.app, torch._dynamo'; \
	touch $(STAMP); \
	echo "setup: ready in $$(( $$(date +%s) - began )) s"

.PHONY: fmt
fmt: setup ## Format the code and apply the safe lint fixes.
	@$(BIN)/ruff check --fix --quiet . || true
	@$(BIN)/ruff format .

.PHONY: lint
lint: setup ## Ruff: rules and formatting.
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check --quiet . || { echo "lint: not formatted; run make fmt" >&2; exit 1; }

.PHONY: types
types: setup ## mypy --strict on supervisor, trainer, the laboratory and the fakes.
	@$(BIN)/mypy

.PHONY: imports
imports: setup ## Check the import contracts (see CONTRIBUTING.md).
	@$(BIN)/lint-imports

.PHONY: compat38
compat38: setup ## Check that what travels to a host keeps to Python 3.8.
	@$(BIN)/vermin --target=3.8- --violations --no-tips --quiet $(wildcard $(CORE38))

.PHONY: unit
unit: setup ## Unit, simulation and contract tests; fails below 100 % branch coverage of the core.
	@$(PYTEST) $(PURE_TESTS) $(CORE_COVERAGE) $(ARGS)

.PHONY: sim
sim: setup ## Simulations on a virtual clock alone.
	@$(call FOLDER,sim)

.PHONY: meta
meta: setup ## Tests about the repository itself.
	@$(call FOLDER,meta)

.PHONY: contract
contract: setup ## Recorded cases, and promises between parts.
	@$(call FOLDER,contract)

.PHONY: integration
integration: setup ## Real processes, real tmux, real sshd on loopback, fake GPUs.
	@$(call FOLDER,integration)

.PHONY: e2e
e2e: setup ## The whole product over SSH with the CPU trainer.
	@$(call FOLDER,e2e)

.PHONY: browser
browser: setup ## The dashboard in a real browser.
	@$(call FOLDER,browser)

.PHONY: gpu
gpu: setup ## The whole product on this machine's NVIDIA GPUs, as one table; never in CI.
	@$(BIN)/python -m tests.gpu $(ARGS)

.PHONY: assets
assets: setup ## Fetch the dashboard's front-end libraries by their lock file (the pages work without them).
	@sh templates/assets/vendor.sh $(BIN)/python || echo "assets: not fetched; the pages work without them" >&2

.PHONY: test
test: system setup assets ## Everything CI runs, with all set-up; static checks first, then every test in one run.
	@$(MAKE) --jobs 2 --output-sync types lint imports compat38
	@$(PYTEST) $(ALL_TESTS) $(PARALLEL) $(CORE_COVERAGE) $(ARGS)

.PHONY: demo
demo: system-demo setup assets ## The main job on this machine: train, break, diagnose, cure.
	@$(BIN)/dflash-supervise demo $(ARGS)

.PHONY: build
build: setup ## Build the wheel and the source archive into dist/.
	@$(BIN)/python -m build --outdir dist .

.PHONY: clean
clean: ## Remove everything that was built or installed here.
	@rm -rf $(VENV) dist build .cache .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis .coverage htmlcov
