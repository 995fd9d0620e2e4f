# The whole development loop. `make` alone lists what there is.
#
# Two environments, each made on first use and again when pyproject.toml changes: .venv has what users
# get and nothing else (so the demo shows that nothing is missing), .venv-dev has the tools.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

PYTHON ?= python3
LISTEN ?= 127.0.0.1:9470
# Tests mostly wait for sockets and processes, so more at a time than a small machine has cores.
WORKERS ?= 6
# Which of the tests against a real vLLM; CI leaves out those that take minutes each.
LIVE ?= real_vllm
VENV := .venv
DEV := .venv-dev
BIN := $(DEV)/bin
SUPPLY := .venv-supply
DOCS := .venv-docs
CODE := vllm_watch tests benchmarks dashboards alerts docs deploy

# Tests start the daemon hundreds of times, and without byte code each start compiles all of it anew.
export PYTHONDONTWRITEBYTECODE :=

# command:Debian package, of what tests drive that pip cannot bring; make deps installs those that are missing.
# A kubectl of Google's packages conflicts with Debian's, and will do.
TOOLS := prometheus:prometheus promtool:prometheus prometheus-alertmanager:prometheus-alertmanager \
	amtool:prometheus-alertmanager chromium:chromium gcc:gcc kubectl:kubernetes-client \
	curl:curl mandoc:mandoc nsenter:util-linux systemd-analyze:systemd zsh:zsh jq:jq pgrep:procps

.PHONY: help demo test test-longest test-short durations one-truth hunt check english format format-check generate hooks lint types imports test-vllm test-vllm-long test-gpu bench bench-page bench-long bench-detection bench-history golden fault-removals soak soak-healthy kills fuzz mutants screenshots dist lock sbom supply docs deps tools clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(VENV)/.installed  ## watch a simulated fleet on http://127.0.0.1:9470 (LISTEN=HOST:PORT to change)
	@echo "The page will be on http://$(LISTEN)/ and the metrics on http://$(LISTEN)/metrics; Ctrl-C ends it."
	@exec $(VENV)/bin/vllm-watch demo --listen $(LISTEN)

# What runs elsewhere: make test-vllm, .ci/run, make supply, make docs.
HERE := not real_vllm and not real_gpu and not podman and not supply and not site

test: tools $(DEV)/.installed  ## run the tests: of each function what takes up to 2 s
	$(BIN)/pytest -q -m '$(HERE) and not longest' -n $(WORKERS) --dist loadfile --no-loadscope-reorder $(PYTEST_ARGS)

test-longest: tools $(DEV)/.installed  ## run what make test leaves out because it takes longer
	$(BIN)/pytest -q -m '$(HERE) and longest' -n $(WORKERS) --dist loadfile --no-loadscope-reorder $(PYTEST_ARGS)

durations: tools $(DEV)/.installed  ## run both and write down how long each test took: what is left out goes by it (on a quiet machine)
	$(BIN)/pytest -q -m '$(HERE)' -n $(WORKERS) --dist loadfile --no-loadscope-reorder --measure

one-truth: tools $(DEV)/.installed  ## two cycles of the demo with a real Prometheus at each of 1,170 seconds (half an hour)
	RULES_EVERY_SECONDS=1 $(BIN)/pytest -q -n 0 tests/export/test_one_truth.py

hunt: $(DEV)/.installed  ## try 20 times as many examples of the property tests, other ones each time (some minutes)
	$(BIN)/pytest -q -m hypothesis --hypothesis-profile=hunt -n $(WORKERS) $(PYTEST_ARGS)

# Two at a time: the tests wait much, and the linters fill the gaps.
check: $(DEV)/.installed  ## before a commit: the linters, and of each test what is quick (make test has all)
	@$(MAKE) --jobs=2 --output-sync=target --keep-going test-short format-check lint types imports

# What is quick waits little, and each worker collects all tests for itself, which takes some seconds.
test-short: WORKERS = 4
test-short: tools
	$(BIN)/pytest -q -m '$(HERE) and not long' -n $(WORKERS) --dist loadfile --no-loadscope-reorder $(PYTEST_ARGS)

format-check: $(DEV)/.installed
	$(BIN)/ruff format --check $(CODE)

lint: $(DEV)/.installed
	$(BIN)/ruff check $(CODE)

types: $(DEV)/.installed
	$(BIN)/mypy
	$(BIN)/mypy --strict dashboards/build.py dashboards/boards alerts docs/*.py

imports: $(DEV)/.installed
	$(BIN)/lint-imports

format: $(DEV)/.installed  ## format the code and mend what ruff can mend
	$(BIN)/ruff format $(CODE)
	$(BIN)/ruff check --fix-only $(CODE)

english: $(DEV)/.installed  ## lower tests/english-budget.txt to the unnatural patterns that are left; more than before are refused
	$(BIN)/python tests/english.py

hooks:  ## check commit messages with .githooks (the tools' environment installs it; hooks elsewhere stay)
	@! git rev-parse --git-dir > /dev/null 2>&1 || git config core.hooksPath > /dev/null || git config core.hooksPath .githooks

generate: $(DEV)/.installed  ## write anew what is made from code: pages of docs, dashboards, forms of the alerts
	$(BIN)/python -m vllm_watch.export.families --markdown > docs/metrics.md
	$(BIN)/python docs/generate_configuration.py
	$(BIN)/python docs/generate_schema.py
	$(BIN)/python docs/generate_man.py
	$(BIN)/python docs/generate_llms.py
	$(BIN)/python docs/generate_cli.py
	$(BIN)/python docs/generate_thresholds.py
	$(BIN)/python docs/generate_diagnose.py
	$(BIN)/python docs/generate_dependencies.py
	$(BIN)/python docs/generate_openapi.py
	$(BIN)/python docs/generate_api.py
	$(BIN)/python docs/generate_chart.py
	$(BIN)/python dashboards/build.py
	$(BIN)/python alerts/generate.py
	$(BIN)/python docs/generate_runbooks.py
	$(BIN)/python -m tests.alerts.recorded
	$(BIN)/python -m tests.cli.top_pictures
	$(BIN)/python -m tests.faults.matrix
	$(BIN)/python -m tests.restart.hazards

test-vllm: $(DEV)/.installed  ## install a real vLLM (CPU, 3.5 GB, minutes) and test against it
	bash tests/real_vllm/install.sh $(if $(findstring not long,$(LIVE)),,nixl)
	$(BIN)/pytest -q -m '$(LIVE)' tests/real_vllm $(PYTEST_ARGS)

test-vllm-long:  ## the same with ten healthy minutes under each load instead of two
	@REAL_VLLM_HEALTHY_SECONDS=600 $(MAKE) test-vllm

test-gpu: $(DEV)/.installed  ## test against the NVIDIA GPU of this machine (as root; a minute)
	$(BIN)/pytest -q -m real_gpu tests/real_gpu $(PYTEST_ARGS)

BENCHES = $(wildcard benchmarks/bench_*.py)
bench: $(DEV)/.installed  ## run every benchmark, one after another, and print its table
	@for bench in $(BENCHES); do echo "== $$bench"; $(BIN)/python "$$bench"; echo "== $$bench took $$SECONDS s in all"; done

bench-page: $(DEV)/.installed  ## measure what watching costs and write docs/performance.md (five minutes, on a quiet machine)
	$(BIN)/python benchmarks/bench_performance.py --page

bench-long: $(DEV)/.installed  ## ... over 24 simulated hours, 20 real minutes, and beside a real vLLM (make test-vllm installs it)
	$(BIN)/python benchmarks/bench_performance.py --long --page

fault-removals: $(DEV)/.installed  ## take the handling of each fault out of a copy: one of its tests must fail (ROW='disk full'; a quarter of an hour, on a quiet machine)
	$(BIN)/python -m tests.faults.removals $(if $(ROW),'$(ROW)')
	$(if $(ROW),,$(BIN)/python -m tests.restart.machine_removals)

mutants: $(DEV)/.installed  ## change the behaviour of dangerous modules, one change at a time: a test must notice it (300 by a seed; MUTANTS='--seed 7 --sample 20 window')
	$(BIN)/python -m tests.mutants.run $(MUTANTS)

soak: $(DEV)/.installed  ## 30 seeds of 24 h in virtual time under faults (hours; goes on where it was; SOAK_ARGS='--seeds 3 --hours 2')
	$(BIN)/python -m benchmarks.soak $(SOAK_ARGS)

kills: tools $(DEV)/.installed  ## kill watchers while they restart, over every kind of hook and lock (KILLS=200 of each, at SITES=4 at once)
	VLLM_WATCH_TEST_KILLS=$(or $(KILLS),200) VLLM_WATCH_TEST_SITES=$(or $(SITES),4) $(BIN)/pytest -q -s tests/restart/test_kills.py $(PYTEST_ARGS)

# Atheris follows coverage; where there is none for this Python, the mutator of tests/fuzz does without.
fuzz: $(DEV)/.installed  ## throw changed inputs at what reads, a minute each (FUZZ_SECONDS=600 FUZZ_ARGS='log trace')
	@$(BIN)/python -c 'import atheris' 2> /dev/null || $(BIN)/python -m pip install --quiet --disable-pip-version-check 'atheris>=3' || true
	$(BIN)/python -m tests.fuzz.run $(FUZZ_ARGS)

soak-healthy: $(DEV)/.installed  ## watch more than ten healthy engine-days in virtual time; any page fails (SOAK_ARGS='--seed 7 --hours 12')
	$(BIN)/python benchmarks/bench_healthy.py --hours 6 $(SOAK_ARGS)

bench-detection: $(DEV)/.installed  ## judge all labelled runs of the lab and write docs/detection.md
	$(BIN)/python benchmarks/bench_detection.py --full --page

bench-history: $(DEV)/.installed  ## judge a stored week of 20 engines with replay --prometheus (a quarter of an hour; BENCH_ARGS='--days 1 --engines 4')
	$(BIN)/python -m benchmarks.history_week $(BENCH_ARGS)

golden: $(DEV)/.installed  ## replay recordings and compare every judgement with the last time (GOLDEN_TRACES='DIR…' STORED=DIR GOLDEN_ARGS=--save)
	@$(BIN)/python benchmarks/golden.py $(GOLDEN_TRACES) --stored $(or $(STORED),.golden) $(GOLDEN_ARGS)

screenshots: tools $(DEV)/.installed  ## take the pictures of docs/images anew, of every state of the page (a quarter of an hour)
	$(BIN)/python docs/take_screenshots.py

dist: $(DEV)/.installed  ## build the wheel and the source distribution into dist/
	rm -rf dist
	$(BIN)/python -m build --quiet --outdir dist
	@ls -l dist

# As they are unless LOCK_ARGS=--upgrade (or --upgrade-package NAME); for every Python and platform at once.
lock: $(SUPPLY)/.installed  ## write requirements*.lock anew: what the image is made of, with hashes, and what tests run with (LOCK_ARGS=--upgrade)
	$(SUPPLY)/bin/uv pip compile --quiet pyproject.toml $(LOCK) --output-file requirements.lock
	$(SUPPLY)/bin/uv pip compile --quiet pyproject.toml --extra apprise --constraint requirements.lock $(LOCK) --output-file requirements-apprise.lock
	$(SUPPLY)/bin/uv pip compile --quiet pyproject.toml --extra apprise --extra top --constraint requirements-apprise.lock $(LOCK) --output-file requirements-host.lock
	$(BUILD_REQUIRES) | $(SUPPLY)/bin/uv pip compile --quiet - $(LOCK) --output-file requirements-build.lock
	$(SUPPLY)/bin/uv pip compile --quiet pyproject.toml --all-extras --group dev --constraint requirements-apprise.lock $(filter-out --generate-hashes,$(LOCK)) --output-file requirements-dev.lock

LOCK = --universal --python-version 3.11 --generate-hashes --custom-compile-command 'make lock' $(LOCK_ARGS)
BUILD_REQUIRES = $(SUPPLY)/bin/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"], sep="\n")'

sbom: $(SUPPLY)/.installed  ## write dist/vllm-watch.cdx.json: what the image is made of, with licences (CycloneDX)
	$(SUPPLY)/bin/uv venv --quiet --clear --python $(SUPPLY)/bin/python build/locked
	$(SUPPLY)/bin/uv pip install --quiet --python build/locked --require-hashes --only-binary :all: --requirements requirements.lock
	$(SUPPLY)/bin/uv pip install --quiet --python build/locked --no-deps .
	mkdir -p dist
	sed "s/^dynamic = .*/version = \"$$(sed -n 's/^__version__ = "\(.*\)"$$/\1/p' vllm_watch/__init__.py)\"/" pyproject.toml > build/locked/pyproject.toml
	$(SUPPLY)/bin/cyclonedx-py environment build/locked --pyproject build/locked/pyproject.toml --mc-type application \
		--output-reproducible --output-format JSON --output-file dist/vllm-watch.cdx.json

supply: $(SUPPLY)/.installed sbom  ## check what is shipped beside the code: lock files, SBOM, Dockerfile, compose, release workflow
	$(SUPPLY)/bin/pytest -q -m supply tests/deploy/test_supply.py $(PYTEST_ARGS)

# Not --quiet: then mkdocs counts no warning, and nothing is strict. NO_MKDOCS_2_WARNING: the theme's word on its successor, which is in pyproject.toml, too.
docs: $(DOCS)/.installed  ## build the documentation as a site in build/site, strictly, and check it
	NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/mkdocs build --strict
	$(DOCS)/bin/pytest -q -m site tests/deploy/test_site.py $(PYTEST_ARGS)

deps:  ## install the Debian packages that the tests drive and that are missing (as root)
	@packages="libc6-dev python3-venv"; for tool in $(TOOLS); do \
		command -v "$${tool%%:*}" > /dev/null || packages="$$packages $${tool##*:}"; done; \
	if [ "$$(id -u)" != 0 ]; then echo "make deps installs Debian packages: run it as root, or: apt-get install $$packages" >&2; exit 1; fi; \
	apt-get update -qq; \
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$packages

tools:
	@missing=""; for tool in $(TOOLS); do \
		command -v "$${tool%%:*}" > /dev/null || missing="$$missing $${tool%%:*} (Debian package $${tool##*:})"; done; \
	if [ -n "$$missing" ]; then \
		echo "The tests drive programs that are not here:$$missing." >&2; \
		echo "As root, make deps installs them all." >&2; exit 1; fi

clean:  ## remove the environments, caches and build results
	rm -rf $(VENV) .venv-dev .venv-vllm $(SUPPLY) $(DOCS) dist build .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# $(1) is the folder of a new environment.
define make_venv
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Python 3.11 or later is needed; name one with make PYTHON=python3.12 …" >&2; exit 1; }
	@rm -rf $(1); $(PYTHON) -m venv $(1) \
		|| { rm -rf $(1); echo "$(PYTHON) -m venv failed; on Debian the package python3-venv is needed." >&2; exit 1; }
endef

$(VENV)/.installed: pyproject.toml
	$(call make_venv,$(VENV))
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

# What is released on the day of a test changes none: constraints are the lock's (without hashes: an editable install has none).
# pip below 25.1 does not know dependency groups, and Python 3.11 brings 23.
$(DEV)/.installed: pyproject.toml requirements-dev.lock
	$(call make_venv,$(DEV))
	$(BIN)/python -m pip install --quiet --disable-pip-version-check 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[top,apprise,completion,otlp]' --group dev --constraint requirements-dev.lock
	@$(MAKE) hooks
	@touch $@

$(SUPPLY)/.installed: pyproject.toml
	$(call make_venv,$(SUPPLY))
	$(SUPPLY)/bin/python -m pip install --quiet --disable-pip-version-check 'pip>=25.1'
	$(SUPPLY)/bin/python -m pip install --quiet --disable-pip-version-check --group supply
	@touch $@

$(DOCS)/.installed: pyproject.toml
	$(call make_venv,$(DOCS))
	$(DOCS)/bin/python -m pip install --quiet --disable-pip-version-check 'pip>=25.1'
	$(DOCS)/bin/python -m pip install --quiet --disable-pip-version-check --group docs
	@touch $@
