# SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
# SPDX-License-Identifier: Apache-2.0
"""The identity matrix: NCCL_PROTO=UZIP against Simple, bit for bit, over ranks, types, ops, sizes and places.

Every rank is a process on the one GPU with two communicators, one made under NCCL_PROTO=Simple and one under
NCCL_PROTO=UZIP (NCCL_ALGO=Ring for both). Each item runs on both with the same input; outputs start poisoned and have
guard bytes round them; the whole output regions must be equal, guards and inputs untouched. The library's own counters
must show that UZIP framed exactly the bytes a ring moves, that everything sent was received, and that the Simple
communicator framed none.

    python3 tests/gpu/identity.py --quick                      # all ranks, a spread of cases
    python3 tests/gpu/identity.py --full --resume              # everything, continuing an earlier result file
    python3 tests/gpu/identity.py --ranks 3 --config c2b0t0 --item 'single|all_reduce:bf16:sum:1025:0:random:0:7'

Exit status: 0 all equal; 1 a difference, an error or a hang; 2 bad arguments; 3 stopped by --limit, see --resume
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import hashlib
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import identity_plan as plan
import nccl_ctypes as nccl
import ranks as launcher

ROOT = Path(__file__).resolve().parents[2]
GUARD = 512  # bytes before, between and behind regions; a multiple of every element size and of 16
POISON = 0xA5
ITEM_TIMEOUT_S = 30.0
CHECK_EVERY = 64  # items between agreements of the ranks whether to go on
MAX_FAILURES = 20  # per part and rank; more say nothing new
_INF, _NAN = float("inf"), float("nan")
PREMUL_FACTORS = (0.5, -1.25, 3.0, 0.3337)
SPECIAL_VALUES = (0.0, -0.0, 1.0, -1.0, _INF, -_INF, _NAN, 1e-40, -1e-40, 65504.0, 3e38, 1e-7)


# ---------------------------------------------------------------------------------------------------------------------
# One rank


class Device:
    """Where the arrays live. ``cpu`` serves the harness's own tests against a library without a GPU."""

    def __init__(self, name: str) -> None:
        import torch

        self.torch = torch
        self.name = name
        self.cuda = name == "cuda"
        if self.cuda:
            if not torch.cuda.is_available():
                raise SystemExit("error: torch sees no CUDA device; the identity matrix needs a GPU")
            torch.cuda.set_device(0)
            self.streams = [torch.cuda.Stream(), torch.cuda.Stream()]

    def stream(self, k: int) -> int | None:
        return self.streams[k].cuda_stream if self.cuda else None

    def on_stream(self) -> contextlib.AbstractContextManager[Any]:
        return self.torch.cuda.stream(self.streams[0]) if self.cuda else contextlib.nullcontext()

    def fork(self) -> None:
        """Let stream 1 begin behind what stream 0 holds so far."""
        if self.cuda:
            self.streams[1].wait_stream(self.streams[0])

    def join(self) -> None:
        """Let stream 0 go on behind what stream 1 holds so far."""
        if self.cuda:
            self.streams[0].wait_stream(self.streams[1])


@dataclass
class Region:
    """Where a case's bytes lie in the arenas: offsets of the first and behind the last byte."""

    inp: tuple[int, int]
    out: tuple[int, int]


@dataclass
class PartResult:
    """One rank's result of one part."""

    counts: Counter[str] = field(default_factory=Counter)
    failures: list[dict[str, Any]] = field(default_factory=list)
    stats: dict[str, dict[str, int]] = field(default_factory=dict)  # per category, deltas of the UZIP communicators
    expected_raw: Counter[str] = field(default_factory=Counter)  # per category, sum over all ranks
    simple_slices: int = 0
    policy: dict[str, Any] = field(default_factory=dict)
    complete: bool = False
    seconds: float = 0.0


class Rank:
    """A rank: the library, its communicators and the arenas."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.rank = int(os.environ["RANK"])
        self.ranks = int(os.environ["WORLD_SIZE"])
        self.nccl = nccl.Nccl(args.lib)  # before torch, so that the process has one NCCL
        self.device = Device(args.device)
        self.torch = self.device.torch
        import torch.distributed as dist

        self.store = dist.TCPStore(
            os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), self.ranks, is_master=self.rank == 0
        )
        self.args = args
        self.simple: list[int] = []
        self.uzip: list[int] = []
        self.arenas: dict[str, Any] = {}
        self.weights = self._load_weights()
        self.float_types = {"bf16": self.torch.bfloat16, "f16": self.torch.float16, "f32": self.torch.float32}
        hosts = {t: [self.torch.tensor([f], dtype=d) for f in PREMUL_FACTORS] for t, d in self.float_types.items()}
        # By type and factor: (nccl.SCALAR_DEVICE, nccl.SCALAR_HOST)
        self.scalars = {t: [(x.to(self.device.name), x) for x in xs] for t, xs in hosts.items()}
        self.current = "start"  # what runs, for error messages

    def _load_weights(self) -> Any:
        path = self.args.payload
        if path is None or not path.is_file():
            return None
        torch = self.torch
        values = torch.from_file(str(path), shared=False, size=path.stat().st_size // 2, dtype=torch.int16)
        return values.view(torch.bfloat16).to(self.device.name)

    # -- communicators

    def make_communicators(self, config: plan.Config, tag: str) -> None:
        """Two Simple and two UZIP communicators. NCCL reads its variables at each init (NCCL_NO_CACHE lists them)."""
        for name, value in config.environment().items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        for proto, comms in (("Simple", self.simple), ("UZIP", self.uzip)):
            os.environ["NCCL_PROTO"] = proto
            for k in range(2):
                key = f"{tag}/{proto}/{k}"
                if self.rank == 0:
                    self.store.set(key, self.nccl.unique_id().hex())
                uid = bytes.fromhex(self.store.get(key).decode())
                comms.append(self.nccl.init_rank(self.ranks, uid, self.rank))
                self.connect(comms[-1])

    def connect(self, comm: int) -> None:
        """Make the communicator's connections, which NCCL does at the first operation."""
        item = plan.Item("single", (plan.Case("all_reduce", "f32", "sum", self.ranks, 0, "zeros", 0, 0),))
        regions, in_size, out_size = self.layout(item)
        with self.device.on_stream():
            self.fill(item, regions, (in_size, out_size), 0)
            self.run_on([comm], item, regions, "simple")
            self.wait()

    def drop_communicators(self) -> None:
        for comm in (*self.simple, *self.uzip):
            self.nccl.check("ncclCommDestroy", self.nccl.lib.ncclCommDestroy(comm))
        self.simple.clear()
        self.uzip.clear()

    def uzip_stats(self) -> Counter[str]:
        total: Counter[str] = Counter()
        for comm in self.uzip:
            total.update(self.nccl.stats(comm))
        return total

    # -- arrays

    def arena(self, name: str, size: int) -> Any:
        have = self.arenas.get(name)
        if have is None or have.numel() < size:
            self.arenas.pop(name, None)
            size = -(-size // (1 << 20)) << 20
            have = self.arenas[name] = self.torch.empty(size, dtype=self.torch.uint8, device=self.device.name)
        return have[:size]

    def layout(self, item: plan.Item) -> tuple[list[Region], int, int]:
        """Regions of the item's cases, and the sizes of the input and output arenas in use (multiples of 16)."""
        regions = []
        ends = [GUARD, GUARD]
        for case in item.cases:
            spans = []
            for k, elements in enumerate((case.send_elements(self.ranks), case.recv_elements(self.ranks))):
                begin = ends[k] + case.shifts[k] * case.element_bytes
                spans.append((begin, begin + elements * case.element_bytes))
                ends[k] = -(-spans[k][1] // GUARD) * GUARD + GUARD
            regions.append(Region(*spans))
        return regions, ends[0], ends[1]

    def values(self, case: plan.Case, rank: int, replay: int, elements: int) -> Any:
        """Input of ``rank`` as bytes; a function of the case, the rank and the replay alone."""
        torch = self.torch
        key = hashlib.sha256(f"{case}/{rank}/{replay}".encode()).digest()
        device = self.device.name
        gen = torch.Generator(device=device).manual_seed(int.from_bytes(key[:7], "little"))
        kind = case.data
        if kind == "mixed":
            kind = ("random", "normal", "zeros", "heavy")[(case.seed + rank) % 4]
        if kind == "weights" and self.weights is None:
            kind = "normal"
        size = elements * case.element_bytes
        if kind == "random" or case.dtype not in plan.FLOATS:
            return torch.randint(0, 256, (size,), generator=gen, device=device, dtype=torch.uint8)
        if kind == "zeros":
            x = torch.zeros(elements, device=device)
        elif kind == "const":
            x = torch.full((elements,), (key[8] - 128) / 64.0, device=device)
        elif kind == "weights":
            start = (case.seed + rank * 4099) % self.weights.numel()
            x = self.weights[(torch.arange(elements, device=device) + start) % self.weights.numel()]
        else:
            x = torch.randn(elements, generator=gen, device=device)
            if kind == "normal":
                x *= 0.02
            elif kind == "sparse":
                x *= torch.rand(elements, generator=gen, device=device) < 0.01
            elif kind == "heavy":
                scale = torch.randn(-(-elements // 4096), generator=gen, device=device) * 3
                x *= torch.exp(scale).repeat_interleave(4096)[:elements]
            elif kind == "special":
                table = torch.tensor(SPECIAL_VALUES, device=device)
                pick = torch.randint(0, len(table), (elements,), generator=gen, device=device)
                x = torch.where(torch.rand(elements, generator=gen, device=device) < 0.5, table[pick], x)
        return x.to(self.float_types[case.dtype]).view(torch.uint8)

    def fill(self, item: plan.Item, regions: list[Region], sizes: tuple[int, int], replay: int) -> None:
        """Inputs, a copy of them to compare with, and poisoned outputs (with the input copied in where in place)."""
        inp, ref = self.arena("inp", sizes[0])[: sizes[0]], self.arena("ref", sizes[0])[: sizes[0]]
        outs = [self.arena(name, sizes[1])[: sizes[1]] for name in ("simple", "uzip")]
        inp.fill_(POISON)
        for out in outs:
            out.fill_(POISON)
        for case, region in zip(item.cases, regions, strict=True):
            data = self.values(case, self.rank, replay, case.send_elements(self.ranks))
            inp[slice(*region.inp)] = data
            # In place NCCL reads the output buffer: all of it where the function reduces, the root's where it copies.
            if case.inplace and (case.func == "all_reduce" or self.rank == case.root):
                for out in outs:
                    out[slice(*region.out)] = data
        ref.copy_(inp)

    # -- running

    def launch(self, comm: int, stream: int | None, case: plan.Case, region: Region, out_name: str) -> None:
        lib, out = self.nccl.lib, self.arenas[out_name].data_ptr() + region.out[0]
        inp = out if case.inplace else self.arenas["inp"].data_ptr() + region.inp[0]
        dtype = nccl.DTYPES[case.dtype]
        op = ctypes.c_int(nccl.OPS.get(case.op, -1))
        if case.op == "premulsum":
            # The pre-multiplier differs by rank, and lies in device memory or on the host.
            scalar = self.scalars[case.dtype][(case.seed + self.rank) % len(PREMUL_FACTORS)]
            where = nccl.SCALAR_DEVICE if case.seed % 2 else nccl.SCALAR_HOST
            pointer = scalar[where].data_ptr()
            code = lib.ncclRedOpCreatePreMulSum(ctypes.byref(op), pointer, dtype, where, comm)
            self.nccl.check("ncclRedOpCreatePreMulSum", code, comm)
        if case.func == "all_reduce":
            code = lib.ncclAllReduce(inp, out, case.count, dtype, op.value, comm, stream)
        elif case.func == "broadcast":
            code = lib.ncclBroadcast(inp, out, case.count, dtype, case.root, comm, stream)
        elif case.func == "all_gather":
            code = lib.ncclAllGather(inp, out, case.count, dtype, comm, stream)
        elif case.func == "reduce_scatter":
            code = lib.ncclReduceScatter(inp, out, case.count, dtype, op.value, comm, stream)
        else:
            code = lib.ncclReduce(inp, out, case.count, dtype, op.value, case.root, comm, stream)
        self.nccl.check(case.func, code, comm)
        if case.op == "premulsum":
            self.nccl.check("ncclRedOpDestroy", lib.ncclRedOpDestroy(op.value, comm), comm)

    def run_on(self, comms: list[int], item: plan.Item, regions: list[Region], out: str) -> None:
        pairs = list(zip(item.cases, regions, strict=True))
        stream = self.device.stream(0)
        if item.kind == "streams":
            self.device.fork()
            for k, (case, region) in enumerate(pairs):
                self.launch(comms[k % 2], self.device.stream(k % 2), case, region, out)
            self.device.join()
        elif item.kind == "group":
            self.nccl.check("ncclGroupStart", self.nccl.lib.ncclGroupStart())
            for case, region in pairs:
                self.launch(comms[0], stream, case, region, out)
            self.nccl.check("ncclGroupEnd", self.nccl.lib.ncclGroupEnd())
        else:
            for case, region in pairs:
                self.launch(comms[0], stream, case, region, out)

    def wait(self) -> None:
        """Wait for stream 0, watching the communicators: an error or a hang ends the rank with a message."""
        if not self.device.cuda:
            return
        event = self.torch.cuda.Event()
        event.record(self.device.streams[0])
        begin = time.monotonic()
        next_look = begin + 0.2
        while not event.query():
            now = time.monotonic()
            if now > next_look:
                next_look = now + 0.2
                self.check_async()
                if now - begin > ITEM_TIMEOUT_S:
                    raise nccl.NcclFailure(f"not done in {ITEM_TIMEOUT_S:.0f} s")
            time.sleep(20e-6)

    def check_async(self) -> None:
        for name, comms in (("Simple", self.simple), ("UZIP", self.uzip)):
            for comm in comms:
                code = self.nccl.async_error(comm)
                if code not in (nccl.SUCCESS, nccl.IN_PROGRESS):
                    self.nccl.check(f"asynchronous error of the {name} communicator", code, comm)

    # -- checking

    def run_item(self, item: plan.Item) -> list[str]:
        """Run the item on both kinds of communicator. Returns what differs, in words; empty when all is equal."""
        if item.kind == "graph" and self.device.cuda:
            return self.run_graph(item)
        regions, in_size, out_size = self.layout(item)
        with self.device.on_stream():
            self.fill(item, regions, (in_size, out_size), 0)
            self.run_on(self.simple, item, regions, "simple")
            self.run_on(self.uzip, item, regions, "uzip")
            self.wait()
            return self.compare(item, regions, (in_size, out_size), 0)

    def run_graph(self, item: plan.Item) -> list[str]:
        """Capture the item once per communicator and replay it on three inputs."""
        torch = self.torch
        regions, in_size, out_size = self.layout(item)
        wrong: list[str] = []
        with self.device.on_stream():
            self.fill(item, regions, (in_size, out_size), 0)
        graphs = []
        for comms, out in ((self.simple, "simple"), (self.uzip, "uzip")):
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=self.device.streams[0], capture_error_mode="thread_local"):
                self.run_on(comms, item, regions, out)
            graphs.append(graph)
        with self.device.on_stream():
            for replay in range(3):
                self.fill(item, regions, (in_size, out_size), replay)
                for graph in graphs:
                    graph.replay()
                self.wait()
                wrong += [f"replay {replay}: {w}" for w in self.compare(item, regions, (in_size, out_size), replay)]
        for graph in graphs:
            graph.reset()
        return wrong

    def compare(self, item: plan.Item, regions: list[Region], sizes: tuple[int, int], replay: int) -> list[str]:
        torch = self.torch
        inp, ref = self.arenas["inp"][: sizes[0]], self.arenas["ref"][: sizes[0]]
        simple, uzip = self.arenas["simple"][: sizes[1]], self.arenas["uzip"][: sizes[1]]
        guards_begin = [0, *(r.out[1] for r in regions)]
        guards_end = [*(r.out[0] for r in regions), sizes[1]]
        flags = [
            (simple.view(torch.int64) != uzip.view(torch.int64)).any(),
            (inp.view(torch.int64) != ref.view(torch.int64)).any(),
            torch.stack([(uzip[b:e] != POISON).any() for b, e in zip(guards_begin, guards_end, strict=True)]).any(),
        ]
        for case, region in zip(item.cases, regions, strict=True):
            if case.func == "broadcast":
                root = self.values(case, case.root, replay, case.count)
                flags.append((uzip[slice(*region.out)] != root).any())
        bad = torch.stack(flags).tolist()
        if not any(bad):
            return []
        wrong = []
        for case, region in zip(item.cases, regions, strict=True):
            differ = (simple[slice(*region.out)] != uzip[slice(*region.out)]).view(-1, case.element_bytes).any(1)
            where = differ.nonzero()
            if len(where):
                first = int(where[0])
                at = region.out[0] + first * case.element_bytes
                pair = [bytes(t[at : at + case.element_bytes].tolist())[::-1].hex() for t in (simple, uzip)]
                values = f"Simple 0x{pair[0]}, UZIP 0x{pair[1]}"
                wrong.append(f"{case}: {len(where)} of {differ.numel()} elements differ, first {first}: {values}")
        if bad[1]:
            wrong.append("the input was written")
        if bad[2]:
            wrong.append("guard bytes round the output were written")
        if any(bad[3:]):
            wrong.append("broadcast output is not the root's input")
        return wrong or ["outputs differ outside the cases' own regions"]

    # -- parts

    def settle(self, result: PartResult, category: str, before: Counter[str]) -> Counter[str]:
        """Book what the counters gained since ``before`` to ``category``. Returns the counters now."""
        now = self.uzip_stats()
        if category:
            gained = {name: now[name] - before[name] for name in now}
            result.stats[category] = dict(Counter(result.stats.get(category, {})) + Counter(gained))
        return now

    def run_part(self, tag: str, config: plan.Config, items: list[plan.Item], deadline: float) -> PartResult:
        result = PartResult()
        begin = time.monotonic()
        self.current = "making communicators"
        self.make_communicators(config, tag)
        result.policy = self.nccl.policy(self.uzip[0])
        before = self.uzip_stats()
        stopped = False
        category = ""
        for index, item in enumerate(items):
            if index % CHECK_EVERY == 0:
                key = f"{tag}/go/{index}"
                if self.rank == 0:
                    self.store.set(key, "go" if time.time() < deadline else "stop")
                stopped = self.store.get(key).decode() == "stop"
                if stopped:
                    break
            if item.category != category:  # items of a category lie together
                before = self.settle(result, category, before)
                category = item.category
            self.current = str(item)
            wrong = self.run_item(item)
            self.check_async()
            result.counts[category] += 1
            replays = 3 if item.kind == "graph" and self.device.cuda else 1
            result.expected_raw[category] += item.ring_raw_bytes(self.ranks) * replays
            if wrong and len(result.failures) < MAX_FAILURES:
                result.failures.append({"item": str(item), "rank": self.rank, "config": str(config), "wrong": wrong})
                print(f"[rank {self.rank}] FAIL {tag} {item}: {'; '.join(wrong)}", flush=True)
        self.settle(result, category, before)
        result.simple_slices = sum(
            s["sendSlices"] + s["recvSlices"] + s["sendWireBytes"] for s in map(self.nccl.stats, self.simple)
        )
        result.complete = not stopped
        self.drop_communicators()
        result.seconds = time.monotonic() - begin
        return result


def worker_main(args: argparse.Namespace) -> int:
    launcher.arm_worker()
    rank = Rank(args)
    deadline = float(os.environ["UZIP_TEST_DEADLINE"])
    for tag in args.parts.split(","):
        config = plan.Config.parse(tag.split("/")[1])
        items = part_items(args, rank.ranks, config)
        if rank.rank == 0:
            print(f"{tag}: {len(items)} items ...", flush=True)
        try:
            result = rank.run_part(tag, config, items, deadline)
        except RuntimeError as e:  # NCCL's and CUDA's
            print(f"[rank {rank.rank}] FAIL {tag} {rank.current}: {e}", flush=True)
            for comm in rank.uzip:
                with contextlib.suppress(nccl.NcclFailure):
                    print(f"[rank {rank.rank}] UZIP communicator: {rank.nccl.stats(comm)}", flush=True)
            sys.stdout.flush()
            os._exit(4)  # a communicator in error may hang in its destructors
        out = args.out_dir / f"{tag.replace('/', '-')}-rank{rank.rank}.json"
        out.write_text(json.dumps(result.__dict__))
        if rank.rank == 0:
            print(f"{tag}: {sum(result.counts.values())} items in {result.seconds:.1f} s", flush=True)
        if not result.complete:
            break
    # The store lives in rank 0: it leaves last.
    rank.store.add("done", 1)
    while rank.rank == 0 and rank.store.add("done", 0) < rank.ranks:
        time.sleep(0.01)
    return 0


def part_items(args: argparse.Namespace, ranks: int, config: plan.Config) -> list[plan.Item]:
    if args.item:
        return [plan.Item.parse(text) for text in args.item]
    known = plan.configs(args.mode, ranks)
    # A setting that is not of the plan's list gets the first one's items.
    index = known.index(config) if config in known else 0
    found = plan.items(args.mode, ranks, index, args.seed, tuple(args.functions.split(",")))
    return [i for i in found if not args.category or i.category in args.category.split(",")]


# ---------------------------------------------------------------------------------------------------------------------
# The launcher


def judge(tag: str, rank_results: list[dict[str, Any]]) -> dict[str, Any]:
    """Put the ranks' results of a part together, and check what only the sum over ranks can show."""
    part: dict[str, Any] = {
        "items": dict(rank_results[0]["counts"]),
        "failures": [f for r in rank_results for f in r["failures"]],
        "complete": all(r["complete"] for r in rank_results),
        "seconds": max(r["seconds"] for r in rank_results),
        "policy": rank_results[0]["policy"],
    }
    totals: dict[str, Counter[str]] = {}
    for r in rank_results:
        for category, stats in r["stats"].items():
            totals.setdefault(category, Counter()).update(stats)

    def fail(what: str) -> None:
        part["failures"].append({"item": None, "config": tag.split("/")[1], "wrong": [what]})

    if not part["policy"]["enabled"]:
        fail(f"NCCL_PROTO=UZIP, but the communicator runs without UZIP: {part['policy']['reason']}")
    for category, stats in totals.items():
        expected = rank_results[0]["expected_raw"][category]
        if stats["sendRawBytes"] != expected:
            fail(f"{category}: {stats['sendRawBytes']} raw bytes were framed, a ring moves {expected}")
        for what in ("RawBytes", "WireBytes", "Slices"):
            sent, received = stats[f"send{what}"], stats[f"recv{what}"]
            if sent != received:
                fail(f"{category}: the ranks' send{what} sum to {sent}, their recv{what} to {received}")
        if category in ("all_reduce", "broadcast") and not stats["sendSlices"]:
            fail(f"{category}: the UZIP communicator framed nothing")
    if any(r["simple_slices"] for r in rank_results):
        fail("the Simple communicator framed slices")
    raw = sum(s["sendRawBytes"] for s in totals.values())
    wire = sum(s["sendWireBytes"] for s in totals.values())
    part["stats"] = {c: dict(s) for c, s in totals.items()}
    part["raw_bytes"], part["wire_bytes"], part["ratio"] = raw, wire, wire / raw if raw else None
    part["ok"] = part["complete"] and not part["failures"]
    return part


def run_parts(args: argparse.Namespace, document: dict[str, Any], mps: dict[str, str], end: float) -> None:
    """Run every part that ``document`` does not hold yet, rank count by rank count, and write it after each."""
    parts: dict[str, Any] = document["parts"]
    for ranks in args.ranks:
        configs = [plan.Config.parse(c) for c in args.config] or plan.configs(args.mode, ranks)
        todo = [t for t in (f"r{ranks}/{c}" for c in configs) if not parts.get(t, {}).get("complete")]
        while todo and time.time() < end:
            with tempfile.TemporaryDirectory(prefix="uzip-identity-") as folder:
                run = launch_ranks(args, ranks, todo, Path(folder), mps, end)
                for tag in list(todo):
                    files = [Path(folder, f"{tag.replace('/', '-')}-rank{r}.json") for r in range(ranks)]
                    if all(f.is_file() for f in files):
                        parts[tag] = judge(tag, [json.loads(f.read_text()) for f in files])
                        todo.remove(tag)
                        report_part(args, tag, parts[tag])
                if not run.ok:
                    # The first part without results is the one that broke; later ones get fresh processes.
                    tag = todo.pop(0) if todo else f"r{ranks}/exit"
                    text = run.describe()
                    print(f"{tag}: {text}", flush=True)
                    failures = [{"item": None, "wrong": [text]}]
                    parts[tag] = {"ok": False, "complete": True, "failures": failures, "items": {}}
                elif todo and parts.get(todo[0]) is None:
                    break  # stopped by the time limit before it began
            document["seconds"] = document.get("seconds", 0.0) + run.seconds
            write_document(args, document)
            if any(not p["complete"] for p in parts.values()):
                return


def launch_ranks(
    args: argparse.Namespace, ranks: int, todo: list[str], folder: Path, mps: dict[str, str], end: float
) -> launcher.RunResult:
    argv = [sys.executable, str(Path(__file__).resolve()), "--worker", "--parts", ",".join(todo)]
    argv += ["--out-dir", str(folder), "--lib", str(args.lib), "--seed", str(args.seed), "--device", args.device]
    argv += ["--functions", args.functions, "--category", args.category, f"--{args.mode}"]
    if args.payload:
        argv += ["--payload", str(args.payload)]
    for item in args.item:
        argv += ["--item", item]
    env = {
        "NCCL_ALGO": "Ring",
        "NCCL_NO_CACHE": "NCCL_MIN_NCHANNELS,NCCL_MAX_NCHANNELS,NCCL_BUFFSIZE,NCCL_NTHREADS",
        "NCCL_DEBUG": "WARN",
        "UZIP_TEST_DEADLINE": str(end),
        **mps,
        **dict(pair.split("=", 1) for pair in args.env),
    }
    # The ranks stop by themselves at `end`; the hard limit catches what does not.
    hard = max(30.0, end - time.time()) + ITEM_TIMEOUT_S + 30
    return launcher.run_ranks(argv, ranks, timeout_s=hard, env=env, logs=folder / "logs")


def report_part(args: argparse.Namespace, tag: str, part: dict[str, Any]) -> None:
    ratio = f"{part['ratio']:.4f}" if part["ratio"] else "-"
    state = "equal" if part["ok"] else f"{len(part['failures'])} FAILURES" if part["failures"] else "incomplete"
    print(f"{tag}: {state}, {sum(part['items'].values())} items, wire/raw {ratio}, {part['seconds']:.1f} s", flush=True)
    ranks, config = tag.removeprefix("r").split("/")
    for failure in part["failures"]:
        if failure["item"]:
            program = f"python3 tests/gpu/identity.py --lib {args.lib} --ranks {ranks} --config {config}"
            failure["replay"] = f"{program} --item '{failure['item']}'"
            print(f"  rank {failure['rank']}: {'; '.join(failure['wrong'])}\n    replay: {failure['replay']}")
        else:
            print(f"  {'; '.join(failure['wrong'])}")


def write_document(args: argparse.Namespace, document: dict[str, Any]) -> None:
    parts = document["parts"].values()
    items: Counter[str] = Counter()
    for part in parts:
        items.update(part["items"])
    document["items"] = dict(items)
    document["failures"] = sum(len(p["failures"]) for p in parts)
    args.json.parent.mkdir(parents=True, exist_ok=True)
    partial = args.json.with_suffix(".tmp")
    partial.write_text(json.dumps(document, indent=1) + "\n")
    partial.replace(args.json)


def describe_machine(args: argparse.Namespace) -> dict[str, Any]:
    gpu = "none"
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
        gpu = subprocess.run(query, capture_output=True, text=True, check=True, timeout=30).stdout.splitlines()[0]
    library = hashlib.sha256(args.lib.read_bytes()).hexdigest()
    return {"gpu": gpu, "cores": os.cpu_count(), "python": platform.python_version(), "library_sha256": library}


def parse_args(argv: list[str] | None) -> argparse.Namespace:
    p = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    p.add_argument("--lib", type=Path, default=ROOT / "build/lib/libnccl-uzip.so", help="libnccl-uzip.so")
    mode = p.add_mutually_exclusive_group()
    mode.add_argument("--quick", dest="mode", action="store_const", const="quick", help="a spread of cases (default)")
    mode.add_argument("--full", dest="mode", action="store_const", const="full", help="the whole matrix")
    p.set_defaults(mode="quick")
    p.add_argument("--ranks", type=int, action="append", help="number of ranks; may be given several times (2 3 4)")
    p.add_argument("--config", action="append", default=[], metavar="cCbBtT", help="communicator setting")
    p.add_argument("--item", action="append", default=[], help="run this item alone (as printed by a failure)")
    p.add_argument("--category", default="", help="only these, by comma: all_reduce, burst, ...")
    p.add_argument(
        "--functions", default="all_reduce,broadcast,all_gather,all_gather_v", help=f"of {', '.join(plan.FUNCTIONS)}"
    )
    p.add_argument("--payload", type=Path, default=ROOT / "build/payload/minilm.bf16", help="real weights, raw bf16")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--limit", type=float, default=460.0, metavar="S", help="stop after S seconds with status 3")
    p.add_argument("--resume", action="store_true", help="skip parts that the result file already holds")
    p.add_argument("--json", type=Path, help="result file (build/gpu-identity-MODE.json)")
    p.add_argument("--env", action="append", default=[], metavar="K=V", help="a variable for every rank")
    p.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu: tests of this program itself")
    for internal, kind in (("--parts", str), ("--out-dir", Path)):
        p.add_argument(internal, type=kind, help=argparse.SUPPRESS)
    p.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    args = p.parse_args(argv)
    args.ranks = args.ranks or [2, 3, 4]
    args.json = args.json or ROOT / f"build/gpu-identity-{args.mode}.json"
    if min(args.ranks) < 2 or max(args.ranks) > 8:
        p.error("--ranks: 2 to 8")
    if unknown := set(args.functions.split(",")) - set(plan.FUNCTIONS):
        p.error(f"--functions: unknown {', '.join(sorted(unknown))}; of {', '.join(plan.FUNCTIONS)}")
    if bad := [e for e in args.env if "=" not in e]:
        p.error(f"--env {bad[0]}: not K=V")
    for item in args.item:
        plan.Item.parse(item)
    if not args.lib.is_file():
        p.error(f"no NCCL library at {args.lib}; build it (make lib) or name it with --lib")
    return args


def main(argv: list[str] | None = None) -> int:
    args = parse_args(argv)
    if args.worker:
        return worker_main(args)
    document: dict[str, Any] = {"parts": {}}
    identity = {name: getattr(args, name) for name in ("mode", "seed", "functions", "category", "env", "item")}
    identity["machine"] = describe_machine(args)
    if args.resume and args.json.is_file():
        document = json.loads(args.json.read_text())
        if any(document.get(k) != v for k, v in identity.items()):
            print(f"error: {args.json} is of another library, machine or plan: remove it or leave --resume out")
            return 2
        document["parts"] = {t: p for t, p in document["parts"].items() if p["complete"]}
    document |= identity
    document["command"] = " ".join(sys.argv)
    wanted = sum(len(args.config) or len(plan.configs(args.mode, r)) for r in args.ranks)
    had = len(document["parts"])
    end = time.time() + args.limit
    with launcher.terminate_as_interrupt(), contextlib.ExitStack() as stack:
        mps = stack.enter_context(launcher.mps_daemon()) if args.device == "cuda" else {}
        document["mps"] = bool(mps)
        run_parts(args, document, mps, end)
    write_document(args, document)
    done = sum(p["complete"] for p in document["parts"].values())
    items = sum(document["items"].values())
    print(f"{done} of {wanted} parts, {items} items, {document['failures']} failures; {args.json}")
    if document["failures"]:
        return 1
    if done < wanted and done == had:
        print(f"error: not one part ended within --limit {args.limit:.0f} s; give it more")
        return 1
    return 0 if done >= wanted else 3


if __name__ == "__main__":
    raise SystemExit(main())
