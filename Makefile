# What a developer and CI run. A bare machine needs Python >= 3.11 with venv,
# and make; everything else goes into $(VENV).

# The folder `agents` must not shadow a third-party `agents`: keep the
# checkout off sys.path.
export PYTHONSAFEPATH := 1
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Hundreds of tests start a worker or a command: where this is set, each of them
# would compile every module once more, a third of its start.
export PYTHONDONTWRITEBYTECODE :=

VENV ?= .venv
BIN := $(VENV)/bin
PYTEST := $(BIN)/pytest -q
# What make test runs, to narrow it: make test TESTS=tests/unit ARGS="-k phases"
TESTS ?= tests
ARGS ?=
SEED ?= 1

.DEFAULT_GOAL := help
.PHONY: help demo test soak sim bench check lint types imports proto wheel clean

help: ## Show this help
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  %-9s %s\n", $$1, $$2}'

demo: $(VENV)/base.stamp ## Real dialogues: publish, fold, cool, read back, replay, and what it cost
	@$(BIN)/turnstate demo

test: $(VENV)/dev.stamp ## All tests but soak and benches, docstring examples too (two processes, <= 10 minutes)
	@$(PYTEST) -n 2 --dist loadfile --no-loadscope-reorder $(TESTS) $(ARGS)

soak: $(VENV)/dev.stamp ## Full counts; SOAK_SECONDS=600 takes a slice, SOAK_SEED=n starts at a seed
	@$(PYTEST) -n 2 --dist worksteal -m soak $(TESTS) $(ARGS)

sim: $(VENV)/dev.stamp ## The whole world from one seed: make sim SEED=7
	@SIM_SEED=$(SEED) $(PYTEST) -m "not bench and not wheel" tests/simulation $(ARGS)

bench: $(VENV)/dev.stamp ## Measure, beside other programs (about half an hour; ARGS="-k frames" takes one)
	@$(BIN)/python -m pip install -q --group bench
	@$(PYTEST) -s -m bench $(TESTS) $(ARGS)

check: lint types imports wheel ## Everything that is judged without running the tests again

lint: $(VENV)/dev.stamp ## Ruff
	@$(BIN)/ruff check .

types: $(VENV)/dev.stamp ## mypy and pyright, strict
	@$(BIN)/mypy
	@$(BIN)/pyright --pythonpath $(BIN)/python

imports: $(VENV)/dev.stamp ## Import direction and purity
	@$(BIN)/lint-imports --no-logo

proto: $(VENV)/dev.stamp ## Write the protobuf code anew, after a change to turnstate.proto
	@$(BIN)/python -m venv $(VENV)/protoc
	@$(VENV)/protoc/bin/python -m pip install -q --upgrade 'pip>=25.1'
	@$(VENV)/protoc/bin/python -m pip install -q --group proto
	@$(VENV)/protoc/bin/python -m grpc_tools.protoc -I .importroot \
	  --python_out=.importroot --pyi_out=.importroot \
	  turnstate/schemas/wire/proto/turnstate.proto

wheel: $(VENV)/dev.stamp ## Build the wheel into dist/, look into it, install it elsewhere
	@WHEEL_DIR=dist $(PYTEST) -m "" tests/packaging

clean: ## Remove what this file makes
	rm -rf $(VENV) build dist *.egg-info
	rm -rf .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache

# Find a Python that will do, as $$python, or say what to install.
define FIND_PYTHON
python=; \
for name in $(PYTHON) python3 python3.14 python3.13 python3.12 python3.11; do \
  if $$name -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
    python=$$name; break; \
  fi; \
done; \
if [ -z "$$python" ]; then \
  echo "turnstate needs Python 3.11 or newer; found: $$(python3 --version 2>&1 || true)." >&2; \
  echo "Install one (Debian, Ubuntu: apt-get install python3 python3-venv), or name it: make $(MAKECMDGOALS) PYTHON=/path/to/python3.12" >&2; \
  exit 1; \
fi; \
if ! $$python -c 'import ensurepip, venv' 2>/dev/null; then \
  version=$$($$python -c 'import sys; print("%d.%d" % sys.version_info[:2])'); \
  echo "Python $$version is here, but it cannot make virtual environments." >&2; \
  echo "Install the package python$$version-venv (Debian, Ubuntu: apt-get install python$$version-venv)." >&2; \
  exit 1; \
fi
endef

# Stamps: done once, and again when the dependencies may have changed.
$(VENV)/base.stamp: pyproject.toml
	@$(FIND_PYTHON); \
	$(BIN)/python -c '' 2>/dev/null || { rm -rf $(VENV); $$python -m venv $(VENV); }; \
	echo "installing into $(VENV)" >&2
	@$(BIN)/python -m pip install -q -e .
	@touch $@

# --group needs pip 25.1.
$(VENV)/dev.stamp: $(VENV)/base.stamp
	@$(BIN)/python -m pip install -q --upgrade 'pip>=25.1'
	@$(BIN)/python -m pip install -q -e '.[cluster]' --group dev
	@touch $@
