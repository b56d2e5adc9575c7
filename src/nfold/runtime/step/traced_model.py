"""Traces the model of one rank, where it plays a part of it or its operators need seeds of their own."""

import functools
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from nfold.capture.capture import recapture
from nfold.capture.cutting.captured import Captured
from nfold.capture.cutting.program_splitting import split
from nfold.capture.example_batches import program_batches
from nfold.capture.program.building import build_model
from nfold.core.graph import ModelGraph
from nfold.core.schedule import RankSchedule, StatisticsGroup
from nfold.program import Program
from nfold.runtime.step.kept_program import KeptProgram


def traced(
    program: Program,
    model: nn.Module,
    graph: ModelGraph,
    dataset: Any,
    own: RankSchedule,
    device: torch.device,
    *,
    splits: Mapping[str, int] | None = None,
    parameters: Mapping[str, nn.Parameter] | None = None,
    lazy: bool = False,
    kept: KeptProgram,
) -> Captured | None:
    """Return the model's trace; None if this rank runs the whole module and no operator needs a seed of its own.

    Args:
        program: the user's.
        model: built by it.
        graph: what was captured, before operators are cut into parts.
        dataset: of samples to trace with.
        own: what this rank plays.
        device: where to compute.
        splits: operator -> number of parts.
        parameters: what the parts use.
        lazy: the weights may still move in memory.
        kept: what this process has made of the program for earlier generations.
    """
    cut = splits or any(len(segment.operators) < len(graph.operators) for segment in own.segments)
    random = any(operator.num_random for operator in graph.operators)
    if graph.capture == "opaque" or not own.segments or not (cut or random):
        return None
    rebuild = functools.partial(build_model, program, device)
    example = program_batches(program, dataset)
    trace = functools.partial(recapture, model, program.loss, example, graph, rebuild=rebuild, lazy=lazy)
    return split(kept.bound(program, graph, model, trace), splits or {}, parameters)


def modules_of(graph: ModelGraph, groups: tuple[StatisticsGroup, ...]) -> tuple[str, ...]:
    """Return the names of the batch norm modules of some groups, each once, in the order of their calls."""
    return tuple(dict.fromkeys(m for group in groups for op in group.operators for m in graph.operator(op).statistics))
