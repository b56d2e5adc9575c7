"""Plays a program under every synchronous strategy and under random placements, and compares it with one device.

Ranks are threads of this process: the harness is the one of the tests.
"""

import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "tests" / "runtime")]

from harness import difference, graph_of, make_plan, placed_plan, plain_loop, play, random_owners  # noqa: E402
from programs.zoo import Style  # noqa: E402

from nfold.core.graph import ModelGraph  # noqa: E402
from nfold.core.placement import Placement  # noqa: E402
from nfold.core.plan import Plan  # noqa: E402
from nfold.errors import PlanError  # noqa: E402
from nfold.planning.asynchronous.asynchronous_strategies import ASYNCHRONOUS  # noqa: E402
from nfold.planning.choosing.strategies import STRATEGIES  # noqa: E402
from nfold.planning.operator_parts.splitting import split_graph  # noqa: E402
from nfold.planning.reductions.buckets import buckets_of  # noqa: E402
from nfold.planning.scheduling.schedule_compiler import compile_schedule  # noqa: E402
from nfold.program import Program  # noqa: E402

State = dict[str, torch.Tensor]
PATIENCE_S = 900.0
BUCKET_BYTES = 4096
"""Small, so that small nets have several."""
MOST_PARTS = 3
SYNCHRONOUS = tuple(each.name for each in STRATEGIES if each.name not in (*ASYNCHRONOUS, "single"))


@dataclass(frozen=True, slots=True)
class Layout:
    """A way of spreading a program."""

    name: str
    ranks: int
    plan: Callable[[], Plan]


@dataclass(frozen=True, kw_only=True, slots=True)
class Sweep:
    """Under what a program is played, and for how long."""

    steps: int
    ranks: tuple[int, ...]
    strategies: tuple[str, ...] = SYNCHRONOUS
    placements: int = 0
    """Random placements of single cells, for each number of ranks."""
    parts: int = 0
    """The same with some of the operators that can be cut by output channels in parts, where there are any."""


@dataclass(frozen=True, slots=True)
class Subject:
    """A program with its graph and what one device makes of it."""

    program: Program
    graph: ModelGraph
    chunks: int
    reference: State
    loss: float | None
    against: str
    reordered: float | None = None
    """How far plain PyTorch itself is from the reference when it adds the gradients of chunks from the last on."""


def subject_of(style: Style, num_steps: int) -> Subject:
    """Capture a program and train it on one device.

    Random numbers belong to (step, chunk, draw) in nfold and to the order of calls in a plain loop, so a program that
    draws is compared with nfold on one rank.
    """
    program = style.program()
    graph = graph_of(program)
    chunks = 1 if graph.indivisible else (program.chunks or 1)
    if not style.draws:
        reference = plain_loop(program, num_steps, chunks).state_dict()
        reordered = difference(plain_loop(program, num_steps, chunks, last_first=True).state_dict(), reference)
        return Subject(program, graph, chunks, reference, None, "plain loop", reordered)
    alone = play(program, graph, make_plan(program, graph, "single", 1, 0, chunks), num_steps)
    return Subject(program, graph, chunks, alone.state, alone.losses[-1], "one rank")


def layouts(subject: Subject, sweep: Sweep) -> Iterator[Layout]:
    """Yield one rank, each strategy at each number of ranks, and placements of single cells, or of operators in parts,
    on random ranks."""
    program, graph, chunks = subject.program, subject.graph, subject.chunks
    if subject.against == "plain loop":
        yield Layout("single", 1, lambda: make_plan(program, graph, "single", 1, 0, chunks))
    for ranks in sweep.ranks:
        for name in sweep.strategies:
            yield Layout(name, ranks, lambda n=name, r=ranks: make_plan(program, graph, n, r, 0, chunks))
        for seed in range(sweep.placements):
            yield Layout("random", ranks, lambda s=seed, r=ranks: random_plan(program, graph, chunks, r, s))
        for seed in range(sweep.parts if random_splits(graph, 0) else 0):
            splits = random_splits(graph, seed)
            drawn = partial(random_plan, program, graph, chunks, ranks, seed, splits)
            yield Layout("random parts", ranks, drawn)


def random_plan(
    program: Program, graph: ModelGraph, chunks: int, ranks: int, seed: int, splits: dict[str, int] | None = None
) -> Plan:
    """Place every cell on a random rank; `splits` says into how many parts operators are cut before."""
    parts = split_graph(graph, splits or {})
    owners = random_owners(parts, chunks, ranks, seed)
    placement = Placement(num_chunks=chunks, world_size=ranks, owners=owners)
    plan = placed_plan(program, owners, ranks, buckets_of(parts, placement, "ring", BUCKET_BYTES))
    return replace(plan, splits=splits or {})


def random_splits(graph: ModelGraph, seed: int) -> dict[str, int]:
    """Cut about half of the operators that can be cut into two or three parts, at least one of them."""
    chosen = random.Random(seed)
    own = {each.name: each.channels for each in graph.operators if each.channels and not each.channels.follows}
    able = {name: channels.units for name, channels in own.items() if channels.units > 1}
    some = [name for name in able if chosen.random() < 0.5] or list(able)[:1]
    return {name: chosen.randint(2, min(MOST_PARTS, able[name])) for name in some}


def measure(style: Style, sweep: Sweep) -> dict[str, Any]:
    """Return what was captured, and a row for each layout: its error and its bytes, or why it was refused."""
    subject = subject_of(style, sweep.steps)
    rows = [_row(subject, layout, style.tolerance, sweep.steps) for layout in layouts(subject, sweep)]
    graph = subject.graph
    return {
        "capture": graph.capture,
        "operators": len(graph.operators),
        "whole": list(graph.whole),
        "parameters": sum(parameter.num_elements for parameter in graph.parameters),
        "notes": [*graph.notes, *([graph.indivisible] if graph.indivisible else [])],
        "against": subject.against,
        "reordered": subject.reordered,
        "worst": max((row["relative_error"] for row in rows if "relative_error" in row), default=None),
        "ok": all(row.get("ok", True) for row in rows),
        "runs": rows,
    }


def _row(subject: Subject, layout: Layout, tolerance: float, num_steps: int) -> dict[str, Any]:
    row: dict[str, Any] = {"layout": layout.name, "ranks": layout.ranks}
    try:
        plan = layout.plan()
    except PlanError as refusal:
        return row | {"refused": str(refusal)}
    parts = split_graph(subject.graph, plan.splits)
    schedule = compile_schedule(parts, plan.placement, plan.reductions, batch_size=plan.batch_size)
    played = play(subject.program, subject.graph, plan, num_steps, patience_s=PATIENCE_S)
    error, sent = difference(played.state, subject.reference), sum(played.sent_bytes)
    if subject.loss is not None:
        error = max(error, abs(played.losses[-1] - subject.loss) / abs(subject.loss))
    ok = error <= tolerance and sent == schedule.sent_bytes
    return row | {"relative_error": error, "sent_bytes": sent, "predicted_bytes": schedule.sent_bytes, "ok": ok}
