# Every target sets itself up: it needs Python 3.11, git and make, and the pinned packages of requirements/.
#
#   make demo          real models, end to end
#   make test          lint, then every test that needs no GPU
#   make lint          format, ruff, mypy, pyright (make -k lint: all four, also when one fails)
#   make test-ops      all of PyTorch's own operator samples through torch.compile -> docs/reference/torch-operators.md, and the
#                      import of each model of the sweep as a trace on a GPU gives it
#   make conformance   the whole ONNX backend suite, also in each executor -> build/conformance*.json
#   make bench         every benchmark, or BENCH="benchmarks/one.py"
#   make gpu-test      tests/gpu, on a machine with an NVIDIA GPU
#   make fuzz          property tests with fresh seeds for FUZZ_MINUTES (60)
#   make clean         what the other targets wrote, the environments excepted

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := test
.DELETE_ON_ERROR:
.NOTPARALLEL:
.PHONY: demo test test-ops lint conformance bench gpu-test gpu-present fuzz clean environment package-links \
  check-format check-rules check-types-mypy check-types-pyright

PYTHON ?= python3.11
WORKERS ?= 2
GPU_WORKERS ?= 8
BENCH ?= $(sort $(shell grep -ls '__main__' benchmarks/*.py))
FUZZ_MINUTES ?= 60
# Another interpreter may be named that has the packages already: make gpu-test GPU_PYTHON=python3
BENCH_PYTHON ?= .venv-bench/bin/python
GPU_PYTHON ?= .venv-gpu/bin/python

export PIP_DISABLE_PIP_VERSION_CHECK := 1
VENV := .venv/bin
# Python compiles what is imported when it is: of the packages that is a part.
PIP_INSTALL := -m pip install --quiet --no-compile

# --- set-up -----------------------------------------------------------------------------------------------------------

%/bin/python:
	@command -v $(PYTHON) >/dev/null || { \
	  echo "make: $(PYTHON) was not found. Install Python 3.11, or name one: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	$(PYTHON) -m venv $*

.venv/.requirements: requirements/dev.txt | .venv/bin/python
	$(VENV)/python $(PIP_INSTALL) -r $<
	@touch $@

# setuptools warns of folders that bear the package's name, whether there are any or not: here there are none.
.venv/.capgraph: pyproject.toml .venv/.requirements
	PYTHONWARNINGS=ignore $(VENV)/python $(PIP_INSTALL) --no-deps --no-build-isolation --editable .
	@touch $@

.venv-bench/.requirements: requirements/bench.txt | .venv-bench/bin/python
	.venv-bench/bin/python $(PIP_INSTALL) -r $<
	@touch $@

.venv-gpu/.requirements: requirements/gpu-cuda13.txt | .venv-gpu/bin/python
	.venv-gpu/bin/python $(PIP_INSTALL) -r $<
	@touch $@

# What the interpreter $(1) needs before it runs: nothing when it is not one of ours.
requirements_of = $(if $(filter .venv-%/bin/python,$(1)),$(patsubst %/bin/python,%/.requirements,$(1)))

environment: .venv/.capgraph

# The package as it is when installed, made of links: mypy wants folders that bear the package's names.
LAYERS := ir passes executors frontends
API_FILES = $(filter-out %/__pycache__,$(wildcard api/*))
package-links:
	@mkdir -p build/package/capgraph
	@ln -sfn $(addprefix ../../../,$(API_FILES) $(LAYERS)) build/package/capgraph/
	@find build/package/capgraph -maxdepth 1 -xtype l -delete

# --- checks -----------------------------------------------------------------------------------------------------------

lint: check-format check-rules check-types-mypy check-types-pyright

check-format: environment
	$(VENV)/ruff format --check .

check-rules: environment
	$(VENV)/ruff check .

check-types-mypy: environment package-links
	$(VENV)/mypy | sed -E 's#build/package/capgraph/($(subst $() ,|,$(LAYERS)))/#\1/#; s#build/package/capgraph/#api/#'

check-types-pyright: environment
	$(VENV)/pyright --pythonpath $(VENV)/python

test: lint
	OPENBLAS_NUM_THREADS=1 $(VENV)/python -m pytest --numprocesses $(WORKERS) --dist worksteal --durations 15

# Half an hour; what is done stays when it is stopped. `make test` takes two samples of each operator.
test-ops: environment
	OPENBLAS_NUM_THREADS=1 $(VENV)/python -W ignore -m tests.frontends.torch.operator_run --workers $(WORKERS) --write
	OPENBLAS_NUM_THREADS=1 $(VENV)/python -W ignore -m tests.frontends.torch.models_on_cuda

conformance: environment
	@mkdir -p build
	$(VENV)/python -m tests.onnx_suite.importing --out build/conformance.json
	$(VENV)/python -m tests.onnx_suite.executing --executor eager,graph,ort --out build/conformance-executors.json

# Half of the time goes to passes: graphs that break one are kept in tests/passes/regressions, which `make test` replays.
# In the other half each round of Hypothesis draws new examples from a seed, which brings a failure back:
# HYPOTHESIS_PROFILE=fuzz .venv/bin/python -m pytest -m hypothesis --hypothesis-seed=SEED
fuzz: environment
	@mkdir -p build/fuzz
	$(VENV)/python -W error -m tests.fuzz_passes --keep --minutes $$(awk 'BEGIN {print $(FUZZ_MINUTES) / 2}')
	@end=$$(( $$(date +%s) + 30 * $(FUZZ_MINUTES) )); \
	while [ $$(date +%s) -lt $$end ]; do \
	  seed=$$(od -An -N4 -tu4 /dev/urandom | tr -d ' '); \
	  echo "$$seed" >> build/fuzz/seeds.txt; \
	  echo "make fuzz: seed $$seed, kept in build/fuzz/seeds.txt"; \
	  HYPOTHESIS_PROFILE=fuzz $(VENV)/python -m pytest --numprocesses $(WORKERS) --dist worksteal -q -x \
	    -m hypothesis --hypothesis-seed=$$seed; \
	done

# --- what to look at --------------------------------------------------------------------------------------------------

demo: environment
	$(VENV)/python examples/demo.py

bench: package-links $(call requirements_of,$(BENCH_PYTHON))
	@[ -n "$(BENCH)" ] || { echo "make bench: benchmarks/ holds no script." >&2; exit 1; }
	@for script in $(BENCH); do echo "== $$script"; PYTHONPATH=build/package $(BENCH_PYTHON) "$$script"; done

# --- GPU --------------------------------------------------------------------------------------------------------------

gpu-present:
	@nvidia-smi -L 2>/dev/null || { \
	  echo "make gpu-test: no NVIDIA GPU answers here (nvidia-smi -L failed)." >&2; \
	  echo "Run it on a machine with an NVIDIA GPU and a driver for CUDA 13 (580 or newer)." >&2; \
	  echo "Everything that needs no GPU is in: make test" >&2; exit 1; }

# What measures has the GPU to itself, after everything else. pytest-benchmark, where it is installed, warns of several
# processes, and warnings are errors.
gpu-test: gpu-present package-links $(call requirements_of,$(GPU_PYTHON))
	@export PYTHONPATH=build/package$${PYTHONPATH:+:$$PYTHONPATH} OPENBLAS_NUM_THREADS=1; failed=0; \
	$(GPU_PYTHON) -m pytest tests/gpu -p no:benchmark -m "not alone" --numprocesses $(GPU_WORKERS) --dist worksteal --durations 15 || failed=1; \
	$(GPU_PYTHON) -m pytest tests/gpu -p no:benchmark -m alone || failed=1; \
	exit $$failed

clean:
	rm -rf build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -not -path './.venv*' -prune -exec rm -rf {} +
