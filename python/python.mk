# SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
# SPDX-License-Identifier: Apache-2.0
#
# The nccl_uzip package in .venv. Its build tools (scikit-build-core, cython) are in requirements.txt, so nothing is fetched.

BUILD ?= build
PYTHON_SOURCES := python/pyproject.toml python/CMakeLists.txt python/README.md $(wildcard python/src/nccl_uzip/*.p*)

.PHONY: python-install
python-install: $(BUILD)/python.stamp ## install the nccl_uzip package into .venv

$(BUILD)/python.stamp: $(PYTHON_SOURCES) | venv
	$(PY) -m pip install --quiet --no-build-isolation --no-deps --force-reinstall ./python
	@mkdir -p $(@D) && touch $@
