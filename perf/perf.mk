# SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
# SPDX-License-Identifier: Apache-2.0
#
# The perf binaries. CMake runs again first, since a toolkit that has just been installed must be found.

.PHONY: perf
perf: configure ## build/perf/all_reduce_perf and broadcast_perf
	@$(PY) $(TOOLS)/cuda home >/dev/null
	@$(CMAKE) $(BUILD) >/dev/null
	@$(CMAKE_TARGET) perf
