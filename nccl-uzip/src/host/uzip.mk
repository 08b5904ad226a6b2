# SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
# SPDX-License-Identifier: Apache-2.0
#
# Our part of NCCL's src/Makefile, which includes this file once its list of sources is complete.

LIBSRCFILES += $(sort $(wildcard uzip/host/*.cc))
INCEXPORTS += nccl_uzip.h

# The first rule of a makefile is its default goal: keep NCCL's.
.DEFAULT_GOAL := build

# INCDIR is set further down, so the target is spelled out.
$(or $(BUILDDIR),$(abspath ../build))/include/nccl_uzip.h: uzip/include/nccl_uzip.h
	@printf "Grabbing   %-35s > %s\n" $< $@
	mkdir -p $(@D)
	install -m 644 $< $@
