# SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
# SPDX-License-Identifier: Apache-2.0
#
# Front door: makes .venv, then drives CMake and the scripts. `make help` lists the targets.

BUILD := build
VENV := .venv
PY := $(VENV)/bin/python
CMAKE := $(VENV)/bin/cmake
TOOLS := nccl-uzip/tools

# Settings: make lib CUDA_ARCHS="80;90" UZIP_FUNCS=ci ...
export CUDA_ARCHS UZIP_FUNCS CUDA_HOME NCCL_SRC NCCL_TARBALL WHEELS JOBS
WHEELS := $(if $(WHEELS),$(abspath $(WHEELS)))
FORCE ?=

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

VENV_DONE := $(VENV)/.complete
# --quiet: what a target says is enough.
CMAKE_TARGET = $(CMAKE) --build $(BUILD) -- --quiet

.PHONY: help
help: ## this list
	@grep -hE '^[a-z][a-z -]*:.*## ' $(MAKEFILE_LIST) | sort -u | awk -F ':.*## ' '{printf "  %-22s %s\n", $$1, $$2}'

.PHONY: venv
venv: $(VENV_DONE) ## .venv with what build and tests need
$(VENV_DONE): requirements.txt $(TOOLS)/venv
	@$(TOOLS)/venv $(VENV) requirements.txt

# CMake runs itself again when one of its files changes; this is for the first time.
.PHONY: configure
configure: $(BUILD)/build.ninja
$(BUILD)/build.ninja: $(VENV_DONE) CMakeLists.txt
	@mkdir -p $(BUILD)
	@$(CMAKE) -S . -B $(BUILD) -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(VENV))/bin/ninja \
	  -DUZIP_PYTHON=$(abspath $(PY)) >$(BUILD)/configure.log 2>&1 || { cat $(BUILD)/configure.log >&2; exit 1; }

-include nccl-uzip/lib.mk
-include nccl-uzip/emu/emu.mk
-include perf/perf.mk
-include perf/lab/lab.mk
-include python/python.mk
-include tests/gpu/gpu.mk

PYTEST_ARGS ?=
.PHONY: test
test: configure ## every test that needs no GPU
	@$(TOOLS)/cuda home >/dev/null # installs nvcc's wheels where there is none; CMake then finds it
	@$(CMAKE) $(BUILD) >/dev/null
	@$(CMAKE_TARGET) all lib-for-tests
	$(PY) -m pytest tests --ignore=tests/gpu $(PYTEST_ARGS)

.PHONY: check
check: venv ## formatting, types, licence lines, the patch series
	@$(TOOLS)/check

.PHONY: format
format: venv ## format the sources in place
	@$(TOOLS)/check --fix

.PHONY: clean
clean: ## remove what was built, but not .venv; FORCE=1 also drops unexported edits in build/nccl
	@$(TOOLS)/tree --remove $(if $(filter-out 0,$(FORCE)),--force)
	rm -rf $(BUILD)
