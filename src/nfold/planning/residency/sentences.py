"""A plan in words: what it wins, what moves and why, who sends no gradients and why, and what holds it up."""

from collections.abc import Iterator

import numpy as np

from nfold.core.residency import ResidencyPlan, Transfer
from nfold.core.text.units import count, duration, figure, link_rate, percent, size
from nfold.planning.residency.methods.choices import Choice
from nfold.planning.residency.methods.joint import joint_optimum, of_members
from nfold.planning.residency.model.boxes import least_compute_s
from nfold.planning.residency.model.problem import Problem

_MOST = 5
"""Of a kind that are told one by one."""
_MUCH = 0.5
"""Of an epoch: so much for gradients is worth a word."""
_NEAR = 1e-3


def sentences(problem: Problem, asked_batch: int, chosen: Choice, plan: ResidencyPlan) -> Iterator[str]:
    """Yield the plan in words.

    Args:
        problem: with the batch that was chosen.
        asked_batch: that was asked for.
        chosen: what the plan was made from.
        plan: the rest of it.
    """
    yield _headline(plan)
    yield from _moves(plan)
    yield from _without_gradients(problem, chosen)
    yield from _pins(problem, chosen)
    yield from _full(problem, chosen)
    yield from _gradients(problem, asked_batch, plan)
    yield from _solver(plan)


def _headline(plan: ResidencyPlan) -> str:
    run, unmoved = duration(plan.cost.run_s), plan.unmoved
    epochs = count(plan.epochs, "epoch")
    if plan.method == "nothing":
        return f"The data stay where they are: {epochs} would take {run}."
    if plan.moving == "nothing":
        return (
            f"Nothing should move: {epochs} would take {run}, and no other place for the data is worth the way there."
        )
    moved = f"Moving {size(plan.moved_bytes)} {plan.moving}"
    takes = f" takes {duration(plan.cost.move_s)} and" if plan.moving == "before training" else ""
    if unmoved is None:
        return f"{moved}{takes} lets {epochs} take {run} in all."
    return (
        f"{moved}{takes} makes {epochs} {figure(unmoved.run_s / plan.cost.run_s)} times as fast: {run} in all instead "
        f"of {duration(unmoved.run_s)}."
    )


def _moves(plan: ResidencyPlan) -> Iterator[str]:
    ranked = sorted(plan.transfers, key=lambda each: -(np.inf if each.saves_s is None else each.saves_s))
    yield from map(_move, ranked[:_MOST])
    if len(ranked) > _MOST:
        rest = sum(each.num_bytes for each in ranked[_MOST:])
        yield f"{count(len(ranked) - _MOST, 'more transfer')} move {size(rest)}."


def _move(transfer: Transfer) -> str:
    what = f"Move {size(transfer.num_bytes)} ({count(transfer.num_samples, 'sample')})"
    way = f"{what} from {transfer.source} to {transfer.target}: takes {duration(transfer.takes_s)}"
    if transfer.saves_s is None:
        return f"{way}; {transfer.source} is excluded."
    return f"{way}, saves {duration(transfer.saves_s)}." if transfer.saves_s > 0 else f"{way}."


def _without_gradients(problem: Problem, chosen: Choice) -> Iterator[str]:
    """Say who sends data once and no gradients, and what they would cost."""
    left = np.flatnonzero(problem.can_compute & ~chosen.members & (problem.boxes.held > 0))
    for node in left[np.argsort(problem.links.narrow[left])][:_MOST]:
        members = chosen.members.copy()
        members[node] = True
        why = _why_not(problem, chosen, int(node))
        if chosen.method == "pipeline":
            yield f"{why}: use its data, not its computing."
            continue
        more_s = of_members(problem, members).run_s - chosen.cost.run_s
        cost = f" With them, the run would take {duration(more_s)} longer." if more_s > 0 else ""
        yield f"{why}: use its data, not its gradients.{cost}"
    if len(left) > _MOST:
        yield f"The same holds for {count(len(left) - _MOST, 'more node')}."


def _why_not(problem: Problem, chosen: Choice, node: int) -> str:
    name, narrow = problem.names[node], problem.links.narrow
    if narrow[node] < narrow[chosen.members].min():
        return f"{name}'s link of {link_rate(float(narrow[node]))} costs more than it brings"
    return f"{name} computes too little for the traffic that one more node makes"


def _pins(problem: Problem, chosen: Choice) -> Iterator[str]:
    """Name who must keep so much that everybody waits for it; in a pipeline, nobody trains on what it keeps alone."""
    if chosen.method == "pipeline":
        return
    boxes = problem.boxes
    alone_s = np.divide(boxes.least, boxes.rate, out=np.zeros(len(boxes.rate)), where=boxes.rate > 0)
    worst = int(alone_s.argmax())
    if alone_s[worst] == 0 or alone_s[worst] < chosen.cost.compute_s * (1 - _NEAR):
        return
    free_s = least_compute_s(boxes.unpinned())
    yield (
        f"{problem.names[worst]} must keep {count(int(boxes.least[worst]), 'sample')} and trains on "
        f"{figure(float(boxes.rate[worst]))} in a second: each epoch computes {duration(float(alone_s[worst]))} at "
        f"least, {figure(float(alone_s[worst]) / free_s)} times as long as without that."
    )


def _full(problem: Problem, chosen: Choice) -> Iterator[str]:
    """Name nodes that would take more if they had room."""
    boxes = problem.boxes
    limited = chosen.members & (chosen.holds >= np.floor(boxes.most)) & (boxes.held < boxes.most)
    idle = limited & (chosen.holds < 0.9 * boxes.rate * chosen.cost.compute_s)
    names = [problem.names[node] for node in np.flatnonzero(idle)[:_MOST]]
    if names:
        yield f"The storage of {', '.join(names)} is full: with more, the others would have less to compute."


def _gradients(problem: Problem, asked_batch: int, plan: ResidencyPlan) -> Iterator[str]:
    if plan.batch_size != asked_batch:
        yield _larger_batch(problem, asked_batch, plan)
    if plan.traffic == "pipeline":
        return
    if problem.demand.traffic.gradient_bytes == 0:
        yield "Gradients are not counted, since nobody said how large they are: give --program, or --gradient."
    elif plan.cost.sync_s > _MUCH * plan.cost.epoch_s:
        share = percent(plan.cost.sync_s / plan.cost.epoch_s)
        does, what = _of_each_step(plan)
        yield (
            f"{what.capitalize()} take {share} of each epoch. A larger batch {does} them less often, and changes what "
            "is learnt: nfold place --batch-up-to says how much that brings."
        )


def _of_each_step(plan: ResidencyPlan) -> tuple[str, str]:
    """Return what a step does once for its batch, beside computing; one member sends nothing."""
    return ("makes", "updates") if len(plan.members) == 1 else ("sends", "gradients")


def _larger_batch(problem: Problem, asked_batch: int, plan: ResidencyPlan) -> str:
    """Say what a batch brings beside what moving brings: with data where they are best for each of both."""
    batch = problem.demand.batch_size
    asked_s = joint_optimum(problem.with_demand(batch_size=asked_batch)).run_s
    faster = figure(asked_s / joint_optimum(problem).run_s)
    does, what = _of_each_step(plan)
    return (
        f"A batch of {batch} instead of {asked_batch} {does} {what} {batch // asked_batch} times less often: by "
        f"itself, it makes the run {faster} times as fast. It changes what is learnt."
    )


def _solver(plan: ResidencyPlan) -> Iterator[str]:
    if plan.gap:
        yield f"The solver was stopped: by its own model, its plan is at most {percent(plan.gap)} from the best one."
    if plan.promised_s is not None and plan.promised_s < plan.cost.run_s * (1 - _NEAR):
        yield (
            f"The integer program promises {duration(plan.promised_s)}, since it takes the links between all pairs for "
            f"independent. Nodes share their link, and all begin together: {duration(plan.cost.run_s)}."
        )
