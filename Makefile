# Every target works from a clean clone; `make` alone lists them.

PYTHON ?= python3
VENV   ?= .venv
PY     := $(VENV)/bin/python
RUN    ?= runs/demo
# Two processes, each with whole modules, whose fixtures then run once.
SPREAD ?= -n 2 --dist worksteal
BRIDGE := $(wildcard setup.py vkore_jax/pjrt/csrc/*)

# Half of a short process is importing JAX, two thirds of that compiling its source:
# write bytecode, whatever the environment says.  (pip does not: it would compile all.)
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help demo numerics test test-slow mutants fuzz lint docs bench clean distclean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' \
	    $(MAKEFILE_LIST)

$(PY):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	    echo "vkore_jax needs Python >= 3.11; $(PYTHON) is" \
	         "$$($(PYTHON) -V 2>&1): make PYTHON=/path/to/python3.11 ..."; exit 1; }
	$(PYTHON) -m venv $(VENV)

# One stamp for each set of extras: reinstalls (and rebuilds the C bridge) only when the
# metadata or the C sources have changed.
$(VENV)/.installed-%: pyproject.toml $(BRIDGE) | $(PY)
	$(PY) -m pip install --quiet --no-compile --editable '.[$*]'
	@touch $@

demo: $(VENV)/.installed-train  ## train a 1 M parameter story model on the NPU
	$(PY) -m train.demo --out $(RUN)
	@echo
	@echo "the loss plot, metrics.jsonl, run.json (with the ledger) and the checkpoints"
	@echo "of the emulated NPU's run are in $(RUN)"

numerics: $(VENV)/.installed-train  ## rerun docs/numerics.md on DATA=train.txt VALID=valid.txt OUT=dir
	$(PY) -m benchmarks.numerics --data $(DATA) --valid $(VALID) --out $(OUT) --docs docs/numerics.md

test: $(VENV)/.installed-train,test  ## run the tests on two processes, but the slow
	$(PY) -m pytest $(SPREAD) -q -m "not slow" $(ARGS)

test-slow: $(VENV)/.installed-train,test  ## run the slow tests
	$(PY) -m pytest $(SPREAD) -q -m slow $(ARGS)

mutants: $(VENV)/.installed-train,test  ## run the mutants of tests/mutation (hours)
	$(PY) -m tests.mutation $(ARGS)

fuzz: $(VENV)/.installed-train,test  ## 100,000 mutated programs (hours; stops, goes on)
	$(PY) -m tests.fuzz.search --out runs/fuzz $(ARGS)

lint: $(VENV)/.installed-train,test,dev  ## ruff (lint and format) and pyright
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/pyright

docs: $(VENV)/.installed-train,test  ## regenerate docs/isa.md, ops.md and chips.md
	$(PY) -m vkore_jax.docs_gen docs

bench: $(VENV)/.installed-train  ## steps per second of `smoke` on vkore and on the CPU
	JAX_PLATFORMS=cpu $(PY) -m train smoke --steps 50 --out runs/bench-cpu
	JAX_PLATFORMS=vkore $(PY) -m train smoke --steps 50 --out runs/bench-vkore

clean:  ## remove what builds and runs have left
	rm -rf build dist *.egg-info runs .pytest_cache .ruff_cache .hypothesis
	find vkore_jax train tests -name __pycache__ -prune -exec rm -rf {} +
	find vkore_jax -name '*.so' -delete

distclean: clean  ## clean, and remove the virtual environment
	rm -rf $(VENV)
