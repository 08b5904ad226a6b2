# SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
# SPDX-License-Identifier: Apache-2.0
"""See what libnccl-uzip.so does for a communicator: raw and wire bytes, policy, versions.

The library is looked up when it is first asked for: a libnccl.so.2 that the process has loaded, the file that
``NCCL_UZIP_LIB`` names, this package's folder, ``build/lib`` of the source tree.
"""

from nccl_uzip._api import is_active, library_path, policy, reset_stats, show_versions, stats, version
from nccl_uzip._types import LibraryNotFoundError, NcclError, Policy, Stats, Version

__all__ = [
    "LibraryNotFoundError",
    "NcclError",
    "Policy",
    "Stats",
    "Version",
    "is_active",
    "library_path",
    "policy",
    "reset_stats",
    "show_versions",
    "stats",
    "version",
]
