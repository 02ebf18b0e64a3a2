# make build   everything from a fresh checkout: an environment, kbuild, the kernels' cubins, the wheel
# make test    the tests that need no GPU, and make static of a sample, unless SAMPLE=no
# make verify  the PTX of all kernels of this repository run on the CPU: right results, no races; SHARD=1/2 of half of them
# make static  what differs in the code of all kernels from bench/baseline.txt: registers, spills, instructions by class
# make lint    style and types of all Python here: ruff, and pyright as pyproject.toml says
# make clean   removes what they made
#
# It takes Python 3.10 or newer, make and a C compiler.

# Without its bytecode on disk kbuild takes twice as long to start.
unexport PYTHONDONTWRITEBYTECODE

PYTHON ?= python3
VENV ?= .venv
INSTALLED := $(VENV)/.installed

.PHONY: build test verify static lint clean

build: $(INSTALLED)
	@echo "==> kbuild build"
	@$(VENV)/bin/kbuild build --strict

verify: $(INSTALLED)
	@echo "==> kbuild verify"
	@$(VENV)/bin/kbuild verify --keep-going $(if $(SHARD),--shard $(SHARD))

static: $(INSTALLED)
	@echo "==> shipped kernels: what differs from bench/baseline.txt"
	@$(VENV)/bin/python bench/static.py

test: $(INSTALLED)
	@echo "==> pytest"
	@$(VENV)/bin/python -m pytest -q -n auto --dist loadfile --no-loadscope-reorder
ifneq ($(SAMPLE),no)
	@echo "==> shipped kernels, a sample: what differs from bench/baseline.txt"
	@$(VENV)/bin/python bench/static.py --sample
endif

lint: $(INSTALLED)
	@$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[dev,test]'
	@echo "==> ruff"
	@$(VENV)/bin/ruff check --quiet
	@$(VENV)/bin/ruff format --check --quiet
	@echo "==> pyright"
	@$(VENV)/bin/pyright --pythonpath $(VENV)/bin/python

$(INSTALLED): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("kbuild needs Python 3.10 or newer, this is " + sys.version.split()[0] if sys.version_info < (3, 10) else 0)'
	@echo "==> making a Python environment in $(VENV)"
	@$(PYTHON) -m venv $(VENV)
	@echo "==> installing kbuild and what it needs (about 150 MB the first time)"
	@$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[test]'
	@touch $@

clean:
	@rm -rf $(VENV) build dist *.egg-info
