# SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
# SPDX-License-Identifier: Apache-2.0
"""A against B: one checked pair, then interleaved timed ones."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from perf.lab import Lab

from .perfbin import BenchError, Library, Sample, run_sample
from .stats import MIN_PAIRS, Outcome, judge

EXTRA_SAMPLES = 2  # of further libraries, beside A and B


@dataclass(frozen=True)
class Task:
    """What to measure. ``sizes``: bytes, a ladder as MIN:MAX:FACTOR, or one size. bar: see `Outcome`.

    iters, warmup, cycles: of one sample; chosen so that it takes a second or two.
    """

    collective: str
    sizes: str
    dtype: str = "bfloat16"
    payload: str = "normal"
    iters: int = 4
    warmup: int = 1
    cycles: int = 1
    bar: float | None = None
    env: Mapping[str, str] = field(default_factory=dict)

    def arguments(self) -> list[str]:
        """The perf binary's arguments that say what is to be run."""
        ladder = self.sizes.split(":")
        first, last, factor = {1: [*ladder * 2, "2"], 2: [*ladder, "2"], 3: ladder}.get(len(ladder), ["", "", ""])
        if not (first and last and factor):
            raise BenchError(f"sizes '{self.sizes}': give one size, or MIN:MAX:FACTOR")
        return ["-b", first, "-e", last, "-f", factor, "-d", self.dtype, "--payload", self.payload]

    def timed(self) -> list[str]:
        """Arguments of a timed sample."""
        rounds = ["-w", str(self.warmup), "-n", str(self.iters), "-N", str(self.cycles)]
        return [*self.arguments(), *rounds, "-c", "0"]

    def checked(self) -> list[str]:
        """Arguments of a sample that checks the values and hashes the outputs."""
        return [*self.arguments(), "-w", "0", "-n", "1", "-c", "1", "--hash"]


@dataclass
class Comparison:
    """A task's result. ``outcomes``, ``identical`` and ``wrong`` are per size in bytes."""

    task: Task
    libraries: list[str]
    outcomes: dict[int, Outcome]
    identical: dict[int, bool]
    wrong: int
    samples: list[Sample]
    link_mbps: int | None
    commands: list[list[str]]

    @property
    def passed(self) -> bool:
        """Whether every size reaches its bar with equal bits and no wrong value."""
        return self.wrong == 0 and all(self.identical.values()) and all(o.passed for o in self.outcomes.values())

    def of(self, library: str) -> list[Sample]:
        """The timed samples of one library, in order."""
        return [s for s in self.samples if s.library == library]

    def median_us(self, library: str, size: int) -> float:
        """Median time of a library for a size, in microseconds."""
        return statistics.median(s.times[size] for s in self.of(library))

    def busbw(self, library: str, size: int) -> float:
        """Bus bandwidth in 10^9 bytes a second that belongs to `median_us`."""
        row = self.of(library)[0].rows[size]
        bandwidth: float = row["out_of_place"]["busbw"] * row["out_of_place"]["time_us"] / self.median_us(library, size)
        return bandwidth

    def wire(self, size: int) -> tuple[int, int] | None:
        """Raw and wire bytes of B for one operation, over all ranks; None when B framed nothing."""
        row = self.of(self.libraries[1])[0].rows[size]
        return None if row["wire_bytes"] is None else (row["raw_bytes"], row["wire_bytes"])

    def as_dict(self) -> dict[str, Any]:
        """Everything as plain data."""
        sizes = {}
        for size, outcome in self.outcomes.items():
            wire = self.wire(size)
            sizes[str(size)] = {
                **{
                    f"{key}_time_us": self.median_us(name, size)
                    for key, name in zip("ab", self.libraries, strict=False)
                },
                **{f"{key}_busbw": self.busbw(name, size) for key, name in zip("ab", self.libraries, strict=False)},
                "extra": {
                    name: {"time_us": self.median_us(name, size), "busbw": self.busbw(name, size)}
                    for name in self.libraries[2:]
                },
                "raw_bytes": wire[0] if wire else None,
                "wire_bytes": wire[1] if wire else None,
                "ratio": wire[1] / wire[0] if wire else None,
                "identical": self.identical[size],
                **asdict(outcome),
            }
        return {
            "task": {**asdict(self.task), "env": dict(self.task.env)},
            "libraries": self.libraries,
            "passed": self.passed,
            "wrong": self.wrong,
            "nccl_link_mbps": self.link_mbps,
            "sizes": sizes,
            "samples": [s.as_dict() for s in self.samples],
            "commands": self.commands,
        }


def compare(
    lab: Lab,
    a: Library,
    b: Library,
    task: Task,
    *,
    perf_dir: Path,
    pairs: int = MIN_PAIRS,
    extra: Sequence[Library] = (),
    timeout: float = 60,
    say: Callable[[str], None] = lambda _text: None,
) -> Comparison:
    """Measure ``task`` with A and B in ``lab``.

    First one pair that is checked and not timed: values against their bounds, and the hash of B's outputs against A's.
    Then A B A B ... A, ``pairs`` times B; libraries in ``extra`` follow in the first rounds. Raises BenchError.
    """
    if pairs < MIN_PAIRS:
        raise BenchError(f"{pairs} pairs: the rule asks for at least {MIN_PAIRS}")
    binary = perf_dir / f"{task.collective}_perf"
    timed, checked = task.timed(), task.checked()
    for library in (a, b, *extra):
        library.check()

    def sample(library: Library, args: Sequence[str]) -> Sample:
        taken = run_sample(lab, library, binary, args, env=task.env, timeout=timeout)
        time_us = taken.times[max(taken.times)]
        say(f"{task.collective} {task.sizes} {library.name}: {time_us:.1f} us ({taken.seconds:.1f} s in all)")
        return taken

    proof_a, proof_b = sample(a, checked), sample(b, checked)
    identical = {size: _hashes(row) == _hashes(proof_b.rows[size]) for size, row in proof_a.rows.items()}
    wrong = sum(
        row[place]["wrong"] or 0
        for proof in (proof_a, proof_b)
        for row in proof.rows.values()
        for place in ("out_of_place", "in_place")
    )
    samples = []
    for round_ in range(pairs):
        samples += [sample(a, timed), sample(b, timed)]
        if round_ < EXTRA_SAMPLES:
            samples += [sample(library, timed) for library in extra]
    samples.append(sample(a, timed))
    a_samples = [s for s in samples if s.library == a.name]
    b_samples = [s for s in samples if s.library == b.name]
    outcomes = {
        size: judge([s.times[size] for s in a_samples], [s.times[size] for s in b_samples], task.bar)
        for size in proof_a.times
    }
    names = [a.name, b.name, *(library.name for library in extra)]
    return Comparison(
        task, names, outcomes, identical, wrong, samples, proof_b.mbps, [[str(binary), *checked], [str(binary), *timed]]
    )


def _hashes(row: dict[str, Any]) -> tuple[str, str]:
    """Hashes of both placements; a row without them is an error, never equal."""
    out, inside = row["out_of_place"]["hash"], row["in_place"]["hash"]
    if out is None or inside is None:
        raise BenchError("the perf binary gave no hash, although --hash was given")
    return out, inside
