#!/usr/bin/env -S python3 -I -S
# SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
# SPDX-License-Identifier: Apache-2.0
"""Stands in for a perf binary: its flags, its JSON, and times that the preloaded "library" holds.

That library is a text file with a JSON object: speed (over the link's), wire (bytes over raw, or null), hash, wrong,
and fail (a status to end with).
"""

import json
import os
import sys


def size(text: str) -> int:
    scale = {"K": 1 << 10, "M": 1 << 20}.get(text[-1])
    return int(text[:-1]) * scale if scale else int(text)


def main() -> None:
    args = dict(zip(sys.argv[1:], sys.argv[2:], strict=False))
    library = os.environ["LD_PRELOAD"]
    with open(library) as file:
        behaviour = json.load(file)
    with open(os.environ["FAKE_PERF_LOG"], "a") as log:
        if os.environ["RANK"] == "0":
            log.write(" ".join([behaviour["name"], *sys.argv[1:-2]]) + "\n")
    if behaviour.get("fail"):
        print("library says no")
        sys.exit(behaviour["fail"])
    if os.environ["RANK"] != "0":
        return
    checked = args["-c"] == "1"
    rows = []
    for cycle in range(int(args.get("-N", "1"))):
        bytes_ = size(args["-b"])
        while bytes_ <= size(args["-e"]):
            time_us = (50 + bytes_ / 1250) / behaviour["speed"]
            place = {
                "time_us": time_us,
                "busbw": bytes_ / time_us / 1000,
                "wrong": behaviour.get("wrong", 0) if checked else None,
                "hash": behaviour["hash"] if "--hash" in sys.argv else None,
            }
            wire = behaviour["wire"]
            rows.append(
                {
                    "schema": behaviour.get("schema", 1),
                    "size": bytes_,
                    "cycle": cycle,
                    "out_of_place": place,
                    "in_place": place,
                    "raw_bytes": 2 * bytes_ if wire else None,
                    "wire_bytes": int(2 * bytes_ * wire) if wire else None,
                    "library": {"path": behaviour.get("loaded", library)},
                }
            )
            bytes_ *= int(args["-f"])
    with open(args["--json"], "w") as file:
        json.dump(rows, file)
    with open(os.environ["NCCL_TOPO_DUMP_FILE"], "w") as file:
        file.write('<net name="uzlab0" speed="10000"/><net name="lo" speed="10000"/>')


if __name__ == "__main__":
    main()
