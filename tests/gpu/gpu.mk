# SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
# SPDX-License-Identifier: Apache-2.0
#
# Tests that need a GPU. They run under the Python that has torch for it (GPU_PY), not under .venv, and need $(BUILD)/lib.
# Results go to perf/results/<date>-gpu-*.json.

BUILD ?= build
GPU_PY ?= python3
GPU_LIB ?= $(BUILD)/lib/libnccl-uzip.so
GPU_DATE := $(shell date +%Y-%m-%d)
GPU_RESULTS := perf/results/$(GPU_DATE)-gpu

.PHONY: test-gpu-quick test-gpu

test-gpu-quick: ## a spread of the identity matrix and a short training, under 4 minutes
	$(GPU_PY) tests/gpu/identity.py --lib $(GPU_LIB) --quick --limit 150 --json $(GPU_RESULTS)-identity-quick.json
	$(GPU_PY) tests/gpu/torch_train.py --lib $(GPU_LIB) --steps 20 --timeout 60 --json $(GPU_RESULTS)-torch-quick.json

test-gpu: ## everything, in parts of at most 8 minutes; continues where an earlier run of the day stopped
	$(GPU_PY) tests/gpu/torch_train.py --lib $(GPU_LIB) --json $(GPU_RESULTS)-torch.json
	@status=3; while [ $$status -eq 3 ]; do \
	  $(GPU_PY) tests/gpu/identity.py --lib $(GPU_LIB) --full --resume --json $(GPU_RESULTS)-identity.json; status=$$?; \
	done; exit $$status
