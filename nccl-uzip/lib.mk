# SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
# SPDX-License-Identifier: Apache-2.0
#
# The fork: NCCL's tree, the patch series, the library.

.PHONY: fetch nccl-tree export-patches check-patches lib lib-stock registers

fetch: ## NCCL's pinned source archive, verified
	@$(TOOLS)/fetch

nccl-tree: ## build/nccl: the pinned source with patches and our sources; FORCE=1 drops unexported edits
	@$(TOOLS)/tree $(if $(filter-out 0,$(FORCE)),--force)

export-patches: ## write nccl-uzip/patches from the commits in build/nccl
	@$(TOOLS)/export-patches

check-patches: ## is the series exact, tagged, small, and what an export would write?
	@$(TOOLS)/check-patches

lib: configure ## build/lib/libnccl-uzip.so (CUDA_ARCHS=, UZIP_FUNCS=ci for a reduced set)
	@$(CMAKE_TARGET) lib

lib-stock: configure ## build/stock/libnccl.so.2: the pinned source, unpatched, same archs and functions
	@$(CMAKE_TARGET) lib-stock

registers: ## registers and spills of UZIP's device functions against Simple's
	@$(TOOLS)/registers
