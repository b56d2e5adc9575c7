# demo   install on a fresh machine and run the main job         test   check, then tests; ALL=1: every test, ALL=server: see .ci/run
# check  format, lint, types, layers                             bench  every benchmark: hours
# pure   the quick tests that need no torch, no ranks and no browser
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PYTEST_ARGS ?= -q
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Modules are compiled when they are first imported, and that is kept: most of torch never is, and pip would do it all.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help demo test pure check browser managers bench docs clean

help:
	@echo 'make demo    install into $(VENV) and train the real digits three ways, side by side'
	@echo 'make test    format, lint, types, layers and tests; with ALL=1 every test, all examples of each property too; ALL=server as .ci/run does'
	@echo 'make check   the same without the tests'
	@echo 'make pure    only the tests that need neither torch nor ranks nor a browser; with LONG=1 those marked long or exhaustive, too'
	@echo 'make browser install chromium with apt-get if it is missing, for the tests of pages'
	@echo 'make managers install Slurm, Open MPI and Java with apt-get if they are missing, for the tests of hosts'
	@echo 'make bench   every benchmark, hours, some as root; rewrites benchmarks/*/result.json'
	@echo 'make docs    check that what documents link to, name and tell to type exists'
	@echo 'make clean   remove what was built; $(VENV) stays'

demo: $(VENV)/.installed
	@$(BIN)/nfold demo

# Tests and the ranks they start compute with one thread each, one test more at a time than there are cores, since some
# wait. Those that start ranks come second, and those that judge what ranks measured have the machine for themselves.
WORKERS = $(shell $(BIN)/python -c 'import os; print(1 + (os.cpu_count() or 1))')
PICK = $(if $(filter 1,$(ALL)),,and not exhaustive)
test: check browser managers
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest $(PYTEST_ARGS) --dist loadfile -m 'not processes and not quiet $(PICK)' \
	  $(if $(ALL),,--hypothesis-profile quick) -n $(WORKERS)
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest $(PYTEST_ARGS) --dist worksteal -m 'processes $(PICK)' -n $(WORKERS) \
	  $$(grep -rl 'mark.processes' tests --include='test_*.py' | sort)
	@$(BIN)/python -m pytest $(PYTEST_ARGS) -m 'quiet $(PICK)' $$(grep -rl 'mark.quiet' tests --include='test_*.py')

# Machines of the runtime decide and do nothing, so they are pure, too.
PURE := $(addprefix tests/,cache core program simulation planning analysis verbs view) \
  tests/examples/test_documents.py $(patsubst %,tests/launch/test_%.py,emulation_plan faults thread_launcher) \
  $(patsubst %,tests/machine/test_%.py,kernel_counters memory_check processes user_folders) \
  $(patsubst %,tests/runtime/asynchronous/test_%.py,pure_parts) \
  $(patsubst %,tests/runtime/checkpoint/test_%.py,gather) \
  $(patsubst %,tests/runtime/coordinator/test_%.py,asked_averages coordinator failing_ranks going_on job_planning replanning) \
  $(patsubst %,tests/runtime/coordinator/members/test_%.py,coming_and_going membership reunion shadow shares_that_follow) \
  $(patsubst %,tests/runtime/failures/test_%.py,first_cause silent_ranks) \
  $(patsubst %,tests/runtime/measuring/test_%.py,probing_rounds reprobing slowness) \
  $(patsubst %,tests/runtime/step/test_%.py,reduction_times)

pure: $(VENV)/.installed-dev
	@PYTHONPATH=tests $(BIN)/python -m pytest $(PYTEST_ARGS) -p without_torch --ignore tests/view/test_in_browser.py -n auto \
	  -m 'not quiet $(if $(LONG),,and not long and not exhaustive)' $(if $(LONG),,--hypothesis-profile quick) $(PURE)

# Not what a reader of README.md saves beside it.
CODE := src tests examples benchmarks
check: $(VENV)/.installed-dev
	@$(BIN)/ruff format --check --quiet $(CODE) && echo 'format  ok'
	@$(BIN)/ruff check --quiet $(CODE) && echo 'lint    ok'
	@$(BIN)/mypy --no-error-summary && echo 'types   ok'
	@$(BIN)/lint-imports --no-logo >$(VENV)/layers.log 2>&1 && echo 'layers  ok' || { cat $(VENV)/layers.log; exit 1; }

# Pages are looked at in a real browser. Where there is none and none can be installed, those tests are skipped.
browser:
	@if command -v chromium >/dev/null || command -v google-chrome >/dev/null; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  echo 'installing chromium, to look at pages with (once)'; \
	  { timeout 300 apt-get -q update && timeout 600 env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends chromium; } \
	    >$(VENV)/chromium.log 2>&1 || echo 'chromium could not be installed ($(VENV)/chromium.log): tests of pages will be skipped'; \
	else echo 'there is no chromium and no right to install it: tests of pages will be skipped'; fi

# Java only where there are jars for it to run (tests/rigs/yarn_pom.xml).
JAVA := $(if $(wildcard $(or $(NFOLD_YARN_JARS),../shared/yarn/jars)/hadoop-yarn-services-core-*.jar),openjdk-17-jre-headless)
# Job systems are tested with the real ones. Where they are missing and cannot be installed, those tests are skipped.
managers:
	@if command -v sbatch >/dev/null && command -v mpirun >/dev/null && [ -x /usr/sbin/sshd ] && [ -x /usr/sbin/nft ] && { test -z '$(JAVA)' || command -v java >/dev/null; }; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  echo 'installing Slurm, Open MPI, OpenSSH, nftables and what YARN needs, to test with (once)'; \
	  { timeout 300 apt-get -q update && timeout 600 env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends \
	    slurmctld slurmd slurm-client openmpi-bin openssh-server openssh-client nftables $(JAVA); } \
	    >$(VENV)/managers.log 2>&1 || echo 'job systems could not be installed ($(VENV)/managers.log): their tests will be skipped'; \
	else echo 'job systems are missing, and there is no right to install them: their tests will be skipped'; fi

bench: $(VENV)/.installed
	@for run in benchmarks/*/run.py benchmarks/*/*/run.py; do echo "== $$run"; $(BIN)/python $$run || exit 1; done

docs: $(VENV)/.installed-dev
	@$(BIN)/python -m pytest -q tests/examples/test_documents.py

clean:
	rm -rf build dist runs .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache src/*.egg-info
	find src tests examples benchmarks -name __pycache__ -type d -exec rm -rf {} +

# Stamps: a second call installs nothing unless the dependencies have changed.
$(VENV)/.installed: pyproject.toml | $(VENV)/bin/python
	@echo 'installing nfold and PyTorch into $(VENV) (once, a few minutes on a slow line)'
	@$(BIN)/python -m pip install -q --no-compile -e . 2>$(VENV)/pip.log || { cat $(VENV)/pip.log >&2; exit 1; }
	@touch $@

$(VENV)/.installed-dev: pyproject.toml | $(VENV)/bin/python
	@echo 'installing nfold, PyTorch and the development tools into $(VENV) (once)'
	@$(BIN)/python -m pip install -q --no-compile -e '.[dev]' 2>$(VENV)/pip.log || { cat $(VENV)/pip.log >&2; exit 1; }
	@touch $@ $(VENV)/.installed

$(VENV)/bin/python:
	@command -v $(PYTHON) >/dev/null || { echo 'nfold needs Python 3.11 or newer; there is no $(PYTHON). Install it, or use make PYTHON=/path/to/python3.11'; exit 1; }
	@$(PYTHON) -c 'import sys; ok = sys.version_info >= (3, 11); found = ".".join(map(str, sys.version_info[:3])); ok or print("nfold needs Python 3.11 or newer; $(PYTHON) is " + found + ". Use make PYTHON=/path/to/python3.11"); sys.exit(not ok)'
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); echo 'cannot make a virtual environment: on Debian and Ubuntu, install python3-venv'; exit 1; }
