# chunkwise. `make` alone lists the targets. The first one that needs Python sets up .venv.
#
#   PIPE=gated_delta      a pipeline: a name or file name in pipelines/, or a path; for show also a stage
#   ABOUT=CW304           what explain is asked for: a code, pipeline, definition
#   ARGS="--axes T=512"   passed on to the command
#   PYTHON=python3.12     the Python that .venv is made with
#   VENV=none             no .venv: the python on PATH (a GPU machine without network). It has what pyproject.toml
#                         names already: the dependencies, for tests pytest and the rest of the extra "test", for
#                         lint ruff, and setuptools 77 or later; `make setup VENV=none` installs chunkwise alone into it

PYTHON ?= python3
VENV ?= .venv
PIPE ?=
ABOUT ?=
ARGS ?=

MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help
# settings of a caller that would send what pip installs elsewhere
unexport PYTHONHOME PIP_USER PIP_TARGET PIP_PREFIX

ifeq ($(VENV),none)
PY := $(PYTHON)
READY :=
else
PY := $(VENV)/bin/python
READY := $(VENV)/.ready
# a .venv of another folder, or of a Python that is gone, is set up again
ifneq ($(shell test -x $(PY) && cat $(READY) 2>/dev/null),$(CURDIR))
.PHONY: $(READY)
endif
endif

CHUNKWISE := $(PY) -m chunkwise.runner
SHIPPED := $(notdir $(wildcard pipelines/*.yaml))

.PHONY: help setup run check verify bench tune bench-peers graph show export list explain doctor test gpu-test lint compile-all schema need-pipe

help: ## List the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1|\2/p' $(firstword $(MAKEFILE_LIST)) | awk -F'|' '{printf "%-14s%s\n", $$1, $$2}'

run: need-pipe $(READY) ## Check, verify, time and draw a pipeline: make run PIPE=gated_delta.yaml
	@$(CHUNKWISE) run "$(PIPE)" $(ARGS)

check: $(READY) ## Check a pipeline file, or all of pipelines/ without PIPE
	@$(CHUNKWISE) check $(if $(PIPE),"$(PIPE)",$(SHIPPED)) $(ARGS)

verify: need-pipe $(READY) ## Hold every stage, and then the op, against float64
	@$(CHUNKWISE) verify "$(PIPE)" $(ARGS)

bench: need-pipe $(READY) ## Time every stage against the device's limits, and the op against others: ARGS="--vs fla"
	@$(CHUNKWISE) bench "$(PIPE)" $(ARGS)

bench-peers: $(READY) ## Time gated_delta, simple_gla, gla and kda beside fla-core and FlashQLA, where those are installed
	@$(PY) examples/bench_peers.py $(ARGS)

tune: need-pipe $(READY) ## Search for faster configurations of a pipeline's kernels on this GPU
	@$(CHUNKWISE) tune "$(PIPE)" $(ARGS)

graph: need-pipe $(READY) ## Draw a pipeline
	@$(CHUNKWISE) graph "$(PIPE)" $(ARGS)

show: need-pipe $(READY) ## Say what a stage is, or a pipeline with its edges solved
	@$(CHUNKWISE) show "$(PIPE)" $(ARGS)

export: need-pipe $(READY) ## Print a pipeline as one plain Python file: ARGS="-o op.py" writes it
	@$(CHUNKWISE) export "$(PIPE)" $(ARGS)

list: $(READY) ## List pipelines, stages and workloads
	@$(CHUNKWISE) list $(ARGS)

explain: $(READY) ## Explain an error code, pipeline files or definitions: make explain ABOUT=CW304
	@$(CHUNKWISE) explain $(ABOUT) $(ARGS)

doctor: $(READY) ## Say what this machine has, and what is known to be wrong with it
	@$(CHUNKWISE) doctor $(ARGS)

test: $(READY) ## Run the tests, skips with their reasons
	@$(PY) -m pytest -n 2 --dist worksteal -rs $(ARGS)

gpu-test: $(READY) ## Run the tests that need a GPU
	@$(PY) -m pytest -m gpu --require-gpu -rs $(ARGS)

lint: $(READY) ## Run ruff
	@$(PY) -m ruff check . $(ARGS)

compile-all: $(READY) ## Compile every shipped configuration for sm_80, sm_90 and sm_100 (no GPU needed)
	@$(PY) -m chunkwise.runner.compiling.compile_check --all $(ARGS)

schema: $(READY) ## Rewrite the JSON Schema of pipeline files
	@$(PY) -m chunkwise.runner.loading.schema --write $(ARGS)

need-pipe:
	@test -n "$(PIPE)" || { \
	  echo "which pipeline? for example: make $(firstword $(MAKECMDGOALS)) PIPE=$(firstword $(SHIPPED))" >&2; \
	  echo "PIPE is a name, a file name in pipelines/ ($(SHIPPED)), or a path" >&2; exit 2; }

ifeq ($(VENV),none)
setup:
	@$(PY) -m pip install -q --no-build-isolation --no-deps -e . >&2
else
setup: $(READY) ## Make .venv (every target that needs it does so by itself)

$(READY): pyproject.toml constraints.txt
ifndef LOCKED
# Two makes at once take turns: the second waits for the lock, reads this file anew and finds nothing left to do.
	@mkdir -p .dev
	@$(PYTHON) -c 'import fcntl, signal, subprocess, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); \
	  lock = open(sys.argv[1], "w"); fcntl.flock(lock, fcntl.LOCK_EX); sys.exit(subprocess.call(sys.argv[2:]))' .dev/setup.lock $(MAKE) LOCKED=1 $(READY) >&2
else
# .unfinished becomes .ready as the last step: a set-up that was interrupted leaves it behind and starts over. It
# keeps its time stamp, so that a change of the two files during the set-up counts.
	@echo "setting up $(VENV), once: PyTorch is large, this takes a minute or more ..." >&2
	@test ! -e $(VENV)/.unfinished || rm -rf $(VENV)
	@rm -f $(READY) && mkdir -p $(VENV) && echo "$(CURDIR)" > $(VENV)/.unfinished
	@$(PYTHON) -m venv $(VENV) >&2
	@$(PY) -m pip install -qq --disable-pip-version-check -c constraints.txt -e '.[dev]' >&2
	@mkdir -p .dev/chunkwise
	@for part in kernels pipelines runner stages; do ln -sfn ../../$$part .dev/chunkwise/$$part; done
	@mv $(VENV)/.unfinished $(READY)
	@echo "$(VENV) is ready" >&2
endif
endif
