# SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
# SPDX-License-Identifier: Apache-2.0
"""What the identity matrix runs: cases, scenarios and communicator settings. Pure: needs no GPU and no torch.

A *case* is one collective. An *item* is what is checked at once: one case, or several that run back to back, in a
group, on two communicators, or captured in a CUDA graph. A *part* is the items of one communicator setting; parts are
independent, and a result file says which are done. The plan is a function of (mode, seed) alone, the same in every
process, and every item prints as one string that replays it.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from nccl_ctypes import ELEMENT_BYTES

KINDS = ("single", "burst", "group", "streams", "graph")
# "all_gather_v" is what NCCL makes of broadcasts from several roots in one group.
FUNCTIONS = ("all_reduce", "broadcast", "all_gather", "reduce_scatter", "reduce", "all_gather_v")
FLOATS = ("bf16", "f16", "f32")
REDUCE_OPS = ("sum", "prod", "min", "max", "avg", "premulsum")
# Kinds of input. "mixed": every rank another one; "weights": real weights where the payload file exists, else normal.
DATA = ("normal", "random", "weights", "heavy", "special", "sparse", "mixed", "zeros", "const")
# (in place, elements that the input is shifted by, elements that the output is shifted by)
PLACES = ((False, 0, 0), (True, 0, 0), (False, 1, 1), (True, 1, 1), (False, 1, 0), (False, 0, 1))

KIB, MIB = 1 << 10, 1 << 20
SMALL = (
    *(1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 65, 127, 129, 255, 257, 511, 512, 513, 1000),
    *(1023, 1024, 1025, 2047, 2049, 3333, 4095, 4097, 8191, 10007, 16384, 32769, 65535, 65537, 100003, 262145),
)
MEDIUM = (524287, 1048577, 2097153, 3000001)
LARGE_BYTES = (16 * MIB, 33 * MIB, 64 * MIB)
QUICK_SMALL = (1, 2, 3, 7, 17, 33, 129, 513, 1023, 1025, 4097, 10007, 65537, 262145)


@dataclass(frozen=True)
class Config:
    """Settings of a communicator pair. ``channels``: exactly that many; ``buffsize``: NCCL_BUFFSIZE in bytes;
    ``threads``: NCCL_NTHREADS. 0 leaves NCCL's default."""

    channels: int = 0
    buffsize: int = 0
    threads: int = 0

    def __str__(self) -> str:
        return f"c{self.channels}b{self.buffsize}t{self.threads}"

    @classmethod
    def parse(cls, text: str) -> Config:
        try:
            channels, rest = text.removeprefix("c").split("b")
            buffsize, threads = rest.split("t")
            return cls(int(channels), int(buffsize), int(threads))
        except ValueError:
            raise SystemExit(f"error: {text!r} is no communicator setting; it looks like c2b65536t0") from None

    def environment(self) -> dict[str, str | None]:
        """Variables to set (None: to unset) before the communicators are made."""
        return {
            "NCCL_MIN_NCHANNELS": str(self.channels) if self.channels else None,
            "NCCL_MAX_NCHANNELS": str(self.channels) if self.channels else None,
            "NCCL_BUFFSIZE": str(self.buffsize) if self.buffsize else None,
            "NCCL_NTHREADS": str(self.threads) if self.threads else None,
        }


@dataclass(frozen=True)
class Case:
    """One collective: ``count`` elements as NCCL counts them for ``func``."""

    func: str
    dtype: str
    op: str
    count: int
    place: int
    data: str
    root: int
    seed: int

    def __str__(self) -> str:
        fields = (self.func, self.dtype, self.op, self.count, self.place, self.data, self.root, self.seed)
        return ":".join(map(str, fields))

    @classmethod
    def parse(cls, text: str) -> Case:
        fields = text.split(":")
        if len(fields) != 8 or fields[0] not in FUNCTIONS or fields[1] not in ELEMENT_BYTES:
            raise SystemExit(f"error: {text!r} is no case; it looks like all_reduce:bf16:sum:1025:0:normal:0:7")
        func, dtype, op, count, place, data, root, seed = fields
        return cls(func, dtype, op, int(count), int(place), data, int(root), int(seed))

    @property
    def inplace(self) -> bool:
        return PLACES[self.place][0]

    @property
    def shifts(self) -> tuple[int, int]:
        return PLACES[self.place][1:]

    @property
    def element_bytes(self) -> int:
        return ELEMENT_BYTES[self.dtype]

    @property
    def covered(self) -> bool:
        """Whether NCCL_PROTO=UZIP may compress it."""
        return self.func in ("all_reduce", "broadcast") and self.dtype in FLOATS

    @property
    def framed(self) -> bool:
        """Whether NCCL_PROTO=UZIP makes its network hops framed. Broadcast is of any type, since its ends may name
        different ones; types without a codec then travel in raw slots."""
        return self.covered or self.func == "broadcast"

    def send_elements(self, ranks: int) -> int:
        return self.count * ranks if self.func == "reduce_scatter" else self.count

    def recv_elements(self, ranks: int) -> int:
        return self.count * ranks if self.func == "all_gather" else self.count

    def ring_raw_bytes(self, ranks: int) -> int:
        """Payload bytes that all ranks together send for it over a ring."""
        hops = 2 * (ranks - 1) if self.func == "all_reduce" else ranks - 1
        return hops * self.count * self.element_bytes if self.framed else 0


@dataclass(frozen=True)
class Item:
    """What is run and compared at once."""

    kind: str
    cases: tuple[Case, ...]

    def __str__(self) -> str:
        return "|".join((self.kind, *map(str, self.cases)))

    @classmethod
    def parse(cls, text: str) -> Item:
        kind, *cases = text.split("|")
        if kind not in KINDS or not cases:
            raise SystemExit(f"error: {text!r} is no item; it looks like KIND|CASE[|CASE...], KIND one of {KINDS}")
        return cls(kind, tuple(map(Case.parse, cases)))

    def ring_raw_bytes(self, ranks: int) -> int:
        """Payload bytes that all ranks together send framed."""
        roots = {c.root for c in self.cases if c.func == "broadcast"}
        as_gather = self.kind == "group" and len(roots) > 1
        return sum(c.ring_raw_bytes(ranks) for c in self.cases if not (as_gather and c.func == "broadcast"))

    @property
    def category(self) -> str:
        if self.kind != "single":
            return self.kind
        case = self.cases[0]
        return case.func if case.covered else "not-covered"


def configs(mode: str, ranks: int) -> list[Config]:
    """Communicator settings: 1, 2, 4 channels, and slots from 8 KiB (which wrap often) to 2 MiB."""
    if mode == "quick":
        return [Config(2, 0, 0), Config(1, 64 * KIB, 0), Config(4, MIB, 0)]
    return [
        Config(2, 0, 0),
        Config(1, 64 * KIB, 0),
        Config(4, MIB, 0),
        Config(0, 0, 0),
        Config(1, 16 * MIB, 128),
        Config(4, 256 * KIB, 256),
        Config(2, 8 * MIB, 512),
    ]


def items(mode: str, ranks: int, config_index: int, seed: int, functions: tuple[str, ...]) -> list[Item]:
    """The items of one part."""
    builder = _Builder(ranks, seed * 1000 + ranks * 100 + config_index, functions)
    quick = mode == "quick"
    small = QUICK_SMALL if quick else SMALL
    medium = (524287, 2097153) if quick else MEDIUM
    large = LARGE_BYTES if config_index == 0 else ()
    # Each setting takes its share of the six places; together they take all (full: three of six per setting).
    places = [config_index % 6] if quick else [(2 * config_index + k) % 6 for k in range(3)]
    roots = range(ranks)

    out: list[Item] = []
    if "all_reduce" in functions:
        for op in REDUCE_OPS:
            for dtype in FLOATS:
                for k, count in enumerate((*small, *medium)):
                    for p in places:
                        out.append(builder.single("all_reduce", dtype, op, count, (p + k) % 6))
    for size in large if "all_reduce" in functions else ():
        for dtype in FLOATS:
            for op in ("sum",) if quick else REDUCE_OPS:
                elements = size // ELEMENT_BYTES[dtype]
                out.append(builder.single("all_reduce", dtype, op, elements, 0))
                if not quick or size == 64 * MIB:
                    out.append(builder.single("all_reduce", dtype, op, elements - 1, 3))
    if "broadcast" in functions:
        for root in roots:
            for dtype in FLOATS:
                for k, count in enumerate((*small, *medium)):
                    for p in places[:2]:
                        out.append(builder.single("broadcast", dtype, "none", count, (p + k) % 6, root))
                for size in large:
                    elements = size // ELEMENT_BYTES[dtype]
                    if not quick or size == 64 * MIB:
                        out.append(builder.single("broadcast", dtype, "none", elements - 1, 2, root))
    out += builder.not_covered(2 if quick else 8)
    for kind in ("burst", "group", "streams", "graph"):
        out += [builder.scenario(kind) for _ in range(6 if quick else 40)]
    return out


class _Builder:
    def __init__(self, ranks: int, seed: int, functions: tuple[str, ...]) -> None:
        self.ranks = ranks
        self.random = random.Random(seed)
        self.functions = functions
        self.drawn = 0

    def case(self, func: str, dtype: str, op: str, count: int, place: int, root: int = 0) -> Case:
        # Data kinds take turns, from a random start, so that each meets every size class.
        self.drawn += self.random.choice((1, 1, 1, 2))
        data = DATA[self.drawn % len(DATA)]
        return Case(func, dtype, op, count, place, data, root, self.random.randrange(1 << 31))

    def single(self, *args: object) -> Item:
        return Item("single", (self.case(*args),))  # type: ignore[arg-type]

    def not_covered(self, each: int) -> list[Item]:
        """Types and functions that NCCL_PROTO=UZIP must run as Simple does."""
        out = []
        for func in self.functions:
            if func == "all_gather_v":
                continue
            dtypes = ("i32", "u8", "i64") if func == "all_reduce" else ("i8",) if func == "broadcast" else FLOATS
            reduces = func in ("all_reduce", "reduce_scatter", "reduce")
            for dtype in dtypes:
                for _ in range(each):
                    count = self.random.choice((1, 33, 1025, 40001, 300007))
                    case = self.case(func, dtype, "sum" if reduces else "none", count, self.random.choice((0, 2)))
                    out.append(Item("single", (replace(case, root=self.random.randrange(self.ranks)),)))
        return out

    def scenario(self, kind: str) -> Item:
        functions = [f for f in self.functions if f in ("all_reduce", "broadcast")]
        cases = []
        root = self.random.randrange(self.ranks)
        one_root = kind == "group" and ("all_gather_v" not in self.functions or self.random.random() < 0.5)
        for _ in range({"burst": 8, "group": 5, "streams": 4, "graph": 1}[kind]):
            func = self.random.choice(functions)
            dtype = self.random.choice(FLOATS)
            op = self.random.choice(REDUCE_OPS) if func == "all_reduce" else "none"
            count = self.random.choice((1, 7, 1025, 4097, 65537, 300001, 1000003))
            root = root if one_root else self.random.randrange(self.ranks)
            cases.append(self.case(func, dtype, op, count, self.random.randrange(6), root))
        return Item(kind, tuple(cases))
