# SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
# SPDX-License-Identifier: Apache-2.0
"""A rank that measures TCP throughput: every rank sends to the next (`ring`) or all others to rank 0 (`incast`).

Each receiver prints one JSON object with the bits per second that it took in, the first part left out so that neither
TCP's start nor the token bucket's first fill counts.
"""

from __future__ import annotations

import json
import os
import selectors
import socket
import sys
import threading
import time

PORT = 7700
SKIP_SECONDS = 0.3
SECONDS = 1.2
RANK = int(os.environ["RANK"])
SIZE = int(os.environ["WORLD_SIZE"])


def address(rank: int) -> str:
    """Address of a rank's link, as the lab gives them out."""
    head, _, last = os.environ["MASTER_ADDR"].rpartition(".")
    return f"{head}.{int(last) + rank}"


def receive(listener: socket.socket, senders: int) -> None:
    selector = selectors.DefaultSelector()
    for _ in range(senders):
        selector.register(listener.accept()[0], selectors.EVENT_READ)
    buffer = bytearray(1 << 18)
    start = time.monotonic()
    counted = 0
    while (now := time.monotonic()) < start + SKIP_SECONDS + SECONDS:
        for key, _ in selector.select(0.05):
            assert isinstance(key.fileobj, socket.socket)
            got = key.fileobj.recv_into(buffer)
            if now > start + SKIP_SECONDS:
                counted += got
    print(json.dumps({"rank": RANK, "bits_per_second": counted * 8 / SECONDS}))


def send(rank: int) -> None:
    data = bytes(1 << 18)
    deadline = time.monotonic() + 10
    while True:
        try:
            sock = socket.create_connection((address(rank), PORT), timeout=10)
            break
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)
    try:
        while True:
            sock.sendall(data)
    except OSError:
        pass  # the receiver has seen enough


def main() -> None:
    pattern = sys.argv[1]
    senders = {"ring": 1, "incast": SIZE - 1 if RANK == 0 else 0}[pattern]
    listener = socket.create_server((address(RANK), PORT), backlog=SIZE)
    if pattern == "ring" or RANK != 0:
        target = (RANK + 1) % SIZE if pattern == "ring" else 0
        threading.Thread(target=send, args=(target,), daemon=senders > 0).start()
    if senders:
        receive(listener, senders)


if __name__ == "__main__":
    main()
