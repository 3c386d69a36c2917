# GNU make; recipes are POSIX sh. Variables may be given on the command line
# (make xclbin BLOCK=32) or in the environment (BLOCK=32 make xclbin).

KERNEL   ?= block
BLOCK    ?= 16
SLICE    ?= 16
DEPTH    ?=
PANEL    ?=
YROOM    ?=
CU       ?= 1
TARGET   ?= hw
PLATFORM ?=
MATRIX   ?= gallery:elasticity3d
PYTHON   ?= python3
VENV     ?= .venv

# More words for the command behind a target.
RUN_ARGS    ?=
PYTEST_ARGS ?=
BENCH_ARGS  ?=
XCLBIN_ARGS ?=

# AMD's own runtime, where it is installed, stands in for Debian's packages.
XRT ?= /opt/xilinx/xrt

ifneq ($(words $(VENV)),1)
$(error VENV is '$(VENV)'; it must be one path without blanks)
endif

PY         := '$(VENV)/bin/python'
SPMV_FPGA  := $(PY) -m spmv_fpga
PLATFORM_OPTION := $(if $(PLATFORM), --platform '$(PLATFORM)')
# Of kernel lanes; empty is its own default.
LANES_OPTIONS := $(if $(DEPTH), --depth '$(DEPTH)')$(if $(PANEL), --panel '$(PANEL)')$(if \
    $(YROOM), --y-room '$(YROOM)')
PARAMETERS := --kernel '$(KERNEL)' --block '$(BLOCK)' --slice '$(SLICE)' --cu '$(CU)'$(LANES_OPTIONS)

.DEFAULT_GOAL := help
.NOTPARALLEL:
.SUFFIXES:
.DELETE_ON_ERROR:
.PHONY: help system venv run test lint bench render xclbin clean distclean

help: ## print the targets
	@echo 'make TARGET [VARIABLE=value ...]'; echo
	@sed -n 's/^\([a-z]*\):.*## /\1 /p' Makefile | while read -r name text; do \
	    printf '  %-10s %s\n' "$$name" "$$text"; done
	@echo; echo 'Variables and their values now:'
	@echo '  KERNEL=$(KERNEL) BLOCK=$(BLOCK) SLICE=$(SLICE) CU=$(CU) TARGET=$(TARGET) PLATFORM=$(PLATFORM)'
	@echo '  DEPTH=$(DEPTH) PANEL=$(PANEL) YROOM=$(YROOM) (kernel lanes)'
	@echo '  MATRIX=$(MATRIX) PYTHON=$(PYTHON) VENV=$(VENV)'

run: system venv ## set up and multiply a matrix made here on the emulated U50 (MATRIX, RUN_ARGS)
	@$(SPMV_FPGA) run --matrix '$(MATRIX)' --kernel '$(KERNEL)' --block '$(BLOCK)' \
	    --slice '$(SLICE)' --mode sw_emu $(RUN_ARGS)

test: system venv ## set up and run all tests (PYTEST_ARGS)
	@$(PY) -m pytest $(PYTEST_ARGS)

xclbin: venv ## build the xclbin (KERNEL, BLOCK, SLICE, DEPTH, PANEL, YROOM, CU, TARGET, PLATFORM, XCLBIN_ARGS)
	@$(SPMV_FPGA) xclbin $(PARAMETERS) --target '$(TARGET)'$(PLATFORM_OPTION) \
	    --build-dir build $(XCLBIN_ARGS)

render: venv ## write the HLS project into build/render (KERNEL, BLOCK, SLICE, DEPTH, PANEL, YROOM, CU)
	@$(SPMV_FPGA) render $(PARAMETERS)

lint: $(VENV)/.dev ## check style, types and formatting
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@$(PY) -m mypy
	@if command -v clang-format >/dev/null && [ -f .clang-format ]; then \
	    find host hls_templates \( -name '*.[ch]' -o -name '*.[ch]pp' \) \
	    -exec clang-format --dry-run --Werror {} +; fi

bench: system venv ## set up and print the benchmark's ratios (BENCH_ARGS)
	@$(PY) -m benchmarks.run $(BENCH_ARGS)

system: ## install the Debian packages for the emulated card, or say which
	@missing=; \
	command -v g++ >/dev/null || missing="$$missing g++"; \
	[ -d '$(XRT)' ] || for package in libxrt1 libxrt-dev; do \
	    dpkg-query --show --showformat='$${db:Status-Status}' "$$package" 2>/dev/null | \
	    grep -qx installed || missing="$$missing $$package"; done; \
	$(INSTALL_MISSING)

venv: $(VENV)/.installed ## make the virtual environment and install the package

clean: ## remove what was built
	rm -rf build

distclean: clean ## remove the virtual environment and caches too
	rm -rf .venv *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# --- set-up ------------------------------------------------------------------------------

# The stamps make a second set-up cost nothing.
$(VENV)/.installed: pyproject.toml
	@missing=; \
	$(HAS_PIP) || '$(PYTHON)' -c 'import ensurepip, venv' 2>/dev/null || \
	    missing=' python3-venv'; \
	$(INSTALL_MISSING)
	@echo 'Setting up $(VENV) ...' >&2
	@$(HAS_PIP) || '$(PYTHON)' -m venv '$(VENV)'
	@$(PIP_INSTALL) --editable '.[test]'
	@touch '$@'

$(VENV)/.dev: $(VENV)/.installed
	@$(PIP_INSTALL) --editable '.[dev]'
	@touch '$@'

HAS_PIP     = $(PY) -m pip --version >/dev/null 2>&1
PIP_INSTALL = $(PY) -m pip install --quiet --disable-pip-version-check

# Installs the Debian packages named in the shell variable `missing`, where it can.
INSTALL_MISSING = \
	if [ -z "$$missing" ]; then :; \
	elif ! command -v apt-get >/dev/null; then \
	    echo "This may need$$missing (names of the Debian packages); trying without." >&2; \
	elif [ "$$(id -u)" -eq 0 ]; then \
	    echo "Installing Debian packages:$$missing" >&2; \
	    { apt-get update --quiet=2 && DEBIAN_FRONTEND=noninteractive \
	      apt-get install --yes --quiet=2 --no-install-recommends $$missing; } >&2; \
	else \
	    echo "Debian packages are missing; run: sudo apt-get install --no-install-recommends$$missing" >&2; \
	    exit 2; \
	fi
