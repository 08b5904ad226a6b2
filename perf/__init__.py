# SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
# SPDX-License-Identifier: Apache-2.0
"""Performance tools: the lab (`perf.lab`), the A/B harness (`perf.bench`) and payloads (`perf.payload`)."""
