# SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
# SPDX-License-Identifier: Apache-2.0
#
# The nccl_uzip package in .venv. What its build needs is named in python/pyproject.toml; CMake and ninja are .venv's.

BUILD ?= build
PYTHON_SOURCES := python/pyproject.toml python/CMakeLists.txt python/README.md $(wildcard python/src/nccl_uzip/*.p*)

.PHONY: python-install
python-install: $(BUILD)/python.stamp ## install the nccl_uzip package into .venv

$(BUILD)/python.stamp: $(PYTHON_SOURCES) $(VENV_DONE)
	@echo "installing python/ into $(VENV) ..." >&2
	@PATH="$(abspath $(VENV))/bin:$$PATH" $(PY) -m pip install --disable-pip-version-check --quiet --force-reinstall \
	  --no-deps $(if $(WHEELS),--no-index --find-links "$(WHEELS)") ./python
	@mkdir -p $(@D) && touch $@

test: python-install
