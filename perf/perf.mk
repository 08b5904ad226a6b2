# SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
# SPDX-License-Identifier: Apache-2.0
#
# The perf binaries. CMake runs again first, since a toolkit that has just been installed must be found.

.PHONY: perf
perf: configure ## build/perf/all_reduce_perf and broadcast_perf
	@$(PY) $(TOOLS)/cuda home >/dev/null
	@$(CMAKE) $(BUILD) >/dev/null
	@$(CMAKE_TARGET) perf

# Against the device headers of the patched tree, for one architecture.
FUSED_ARCH = $(firstword $(subst ;, ,$(or $(CUDA_ARCHS),90)))

.PHONY: fused-perf
fused-perf: lib ## build/perf/fused_perf: the primitives' rates between blocks of one GPU
	@mkdir -p $(BUILD)/perf
	"$$($(PY) $(TOOLS)/cuda home)/bin/nvcc" -std=c++17 -O3 -gencode arch=compute_$(FUSED_ARCH),code=sm_$(FUSED_ARCH) -rdc=true \
	  --expt-extended-lambda -Xptxas -maxrregcount=96 -DNCCL_OS_LINUX -I$(BUILD)/include -I$(BUILD)/nccl/src \
	  -I$(BUILD)/nccl/src/include -I$(BUILD)/nccl/src/include/plugin -I$(BUILD)/nccl/src/device \
	  perf/codec/fused_perf.cu -o $(BUILD)/perf/fused_perf
