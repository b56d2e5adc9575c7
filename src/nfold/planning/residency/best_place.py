"""Where data should live: the chosen way to decide, priced beside the others and told in words."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from nfold.core.residency import Method, NodeShare, ResidencyPlan, Transfer, TriedMethod
from nfold.errors import PlanError
from nfold.planning.residency.methods.choices import UNLIMITED, Choice, integer, nothing
from nfold.planning.residency.methods.joint import joint_optimum
from nfold.planning.residency.methods.pipeline import fetched, pipeline_optimum
from nfold.planning.residency.model.pieces import idle_share
from nfold.planning.residency.model.pricing import computes_s
from nfold.planning.residency.model.problem import Problem
from nfold.planning.residency.model.transfers import Flow, flows
from nfold.planning.residency.sentences import sentences

LEAST_GAIN = 0.05
"""Of a run. `auto` and `joint` move nothing for less: predictions are no nearer than that."""
ENOUGH = 0.05
"""Of a run. A batch is made no larger for less."""
TIME_LIMIT_S = 60.0


def place(problem: Problem, method: Method = "auto", time_limit_s: float = TIME_LIMIT_S) -> ResidencyPlan:
    """Return what should move, and who should compute.

    Args:
        problem: nodes, data and program.
        method: how to decide; `auto` takes the best of those that are quick.
        time_limit_s: for the integer program.

    Raises:
        PlanError: the integer program has no answer, or none in time, a method knows no pipelines, or nothing may move
            and must.
        ClusterError: no node could be the first of a pipeline.
    """
    if problem.demand.traffic.kind == "pipeline":
        return _placed_pipeline(problem, method)
    settled = problem.with_demand(batch_size=chosen_batch(problem))
    stays = nothing(settled)
    choices = _choices(settled, stays, method, time_limit_s)
    return _told(problem, settled, method, _chosen(choices, stays), stays, tuple(_tried(choices, stays)))


def _placed_pipeline(problem: Problem, method: Method) -> ResidencyPlan:
    if method not in ("auto", "joint"):
        raise PlanError(
            f"method {method} divides samples among nodes that all have the whole model, and a pipeline takes all of "
            "them in at one node. Use auto."
        )
    chosen = pipeline_optimum(problem)
    stays = fetched(problem, chosen)
    return _told(problem, problem, method, chosen, stays, tuple(_tried([chosen], stays)))


def _told(
    problem: Problem,
    settled: Problem,
    method: Method,
    chosen: Choice,
    unmoved: Choice | None,
    tried: tuple[TriedMethod, ...],
) -> ResidencyPlan:
    """Return the plan of a choice, in numbers and in words; `settled` has the batch that was chosen."""
    plan = ResidencyPlan(
        method=method,
        moving=chosen.moving,
        epochs=problem.demand.epochs,
        batch_size=settled.demand.batch_size,
        traffic=problem.demand.traffic.kind,
        before=problem.residency,
        nodes=tuple(_shares(settled, chosen)),
        transfers=tuple(_transfers(settled, chosen)),
        cost=chosen.cost,
        unmoved=None if unmoved is None else unmoved.cost,
        promised_s=chosen.promised_s,
        gap=chosen.gap,
        tried=tried,
        works=tuple(tuple(map(int, work)) for work in chosen.works),
    )
    return replace(plan, sentences=tuple(sentences(settled, problem.demand.batch_size, chosen, plan)))


def chosen_batch(problem: Problem) -> int:
    """Return the smallest batch that is about as fast as any that is allowed: twice as large, again and again."""
    demand = problem.demand
    sizes = [demand.batch_size]
    while demand.most_batch is not None and 2 * sizes[-1] <= min(demand.most_batch, problem.residency.num_samples):
        sizes.append(2 * sizes[-1])
    if len(sizes) == 1:
        return sizes[0]
    runs_s = {each: joint_optimum(problem.with_demand(batch_size=each)).run_s for each in sizes}
    return next(each for each in sizes if runs_s[each] * (1 - ENOUGH) <= min(runs_s.values()))


def _choices(problem: Problem, stays: Choice | None, method: Method, time_limit_s: float) -> list[Choice]:
    if method == "ilp":
        return [integer(problem, time_limit_s)]
    if method == "nothing":
        return [_staying(stays)]
    if method == "auto":
        return [*([stays] if stays else []), *(UNLIMITED[name](problem) for name in ("waterfill", "overlap", "joint"))]
    found = UNLIMITED[method](problem)
    return [stays, found] if method == "joint" and stays else [found]


def _staying(stays: Choice | None) -> Choice:
    if stays is None:
        raise PlanError("a node that is excluded holds samples, so not everything can stay where it is. Use auto.")
    return stays


def _chosen(choices: Sequence[Choice], stays: Choice | None) -> Choice:
    best = min(choices, key=lambda choice: choice.cost.run_s)
    if stays in choices and stays is not None and best.cost.run_s > stays.cost.run_s * (1 - LEAST_GAIN):
        return stays
    return best


def _tried(choices: Sequence[Choice], stays: Choice | None) -> Iterator[TriedMethod]:
    if stays is None:
        yield TriedMethod(method="nothing", note="samples cannot stay where they are")
    elif stays not in choices:
        yield TriedMethod(method=stays.method, cost=stays.cost)
    for choice in choices:
        yield TriedMethod(method=choice.method, cost=choice.cost)


def _shares(problem: Problem, chosen: Choice) -> Iterator[NodeShare]:
    boxes, each = problem.boxes, problem.residency.sample_bytes
    seconds = computes_s(problem, chosen.work)
    for index, name in enumerate(problem.names):
        holds, held, work = (float(each[index]) for each in (chosen.holds, boxes.held, chosen.work))
        yield NodeShare(
            node=name,
            held=int(held),
            holds=int(holds),
            is_member=bool(chosen.members[index]),
            share=work / boxes.total,
            computes_s=float(seconds[index]),
            sends_bytes=max(0.0, held - holds) * each,
            receives_bytes=max(0.0, holds - held) * each,
        )


def _transfers(problem: Problem, chosen: Choice) -> Iterator[Transfer]:
    boxes, each = problem.boxes, problem.residency.sample_bytes
    idle = _moving_share(problem, chosen)
    change = chosen.holds - boxes.held
    needs_s = np.maximum(-change / boxes.up, change / boxes.down) / idle
    for flow in flows(boxes.held, chosen.holds, problem.sites):
        takes_s = float(max(needs_s[flow.source], needs_s[flow.target]))
        yield Transfer(
            source=problem.names[flow.source],
            target=problem.names[flow.target],
            num_samples=flow.num_samples,
            num_bytes=flow.num_samples * each,
            takes_s=takes_s,
            saves_s=_saves_s(problem, chosen, flow, takes_s),
        )


def _moving_share(problem: Problem, chosen: Choice) -> float:
    """Return the share of time that samples have of links while data move: in the first epoch, where most do."""
    if chosen.moving != "while training":
        return 1.0
    computing = 1 - chosen.cost.sync_s / chosen.cost.first_epoch_s
    return idle_share(problem.demand.traffic, chosen.members) * max(computing, 1e-3)


def _saves_s(problem: Problem, chosen: Choice, flow: Flow, takes_s: float) -> float | None:
    """Return what all epochs would take longer if the flow's samples stayed; a pipeline would fetch them in each."""
    if chosen.method == "pipeline":
        return (problem.demand.epochs - 1) * max(0.0, takes_s - chosen.cost.compute_s)
    rate = float(problem.boxes.rate[flow.source])
    if rate == 0:
        return None
    alone_s = (float(chosen.holds[flow.source]) + flow.num_samples) / rate
    sync_s: float = chosen.cost.sync_s
    if not chosen.members[flow.source]:
        members = chosen.members.copy()
        members[flow.source] = True
        sync_s = problem.sync_s(members)
    longer_s = max(alone_s, chosen.cost.compute_s) + sync_s - chosen.cost.epoch_s
    return problem.demand.epochs * longer_s
