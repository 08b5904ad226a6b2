# SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
# SPDX-License-Identifier: Apache-2.0
"""Shared parts of the programs in nccl-uzip/tools. Standard library only, Python 3.10 or newer."""
