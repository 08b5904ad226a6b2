# SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
# SPDX-License-Identifier: Apache-2.0

.PHONY: cpu
cpu: configure ## build/cpu: the device code on a CPU (uzip_ranks, libuzip_codec.so)
	@$(CMAKE_TARGET) uzip_codec uzip_ranks

.PHONY: test-protocol
test-protocol: configure ## tests of the protocol and the warp emulator
	@$(CMAKE_TARGET) uzip_ranks uzip_ranks_san emu_test emu_test_san
	$(PY) -m pytest tests/protocol $(PYTEST_ARGS)
