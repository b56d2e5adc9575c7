"""Samples that a host brings which joins while others train: whether the run may count them, and from when on. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from nfold.core import codec
from nfold.core.job import JobSettings
from nfold.core.options.averages import EPOCH
from nfold.core.outputs import ModuleOutput
from nfold.core.residency import NodeData, PlacedRun, Spans, spans_of
from nfold.core.text.units import count
from nfold.errors import ClusterError, ProgramError
from nfold.planning.choosing.early_checks import RunSteps
from nfold.planning.residency.epoch_steps import EpochSteps
from nfold.planning.residency.model.spans import common, num_samples
from nfold.planning.residency.node_inventory import Inventory, refuse_claimed_twice
from nfold.planning.residency.resident_order import count_samples
from nfold.runtime.coordinator.same_program import averages_of

_FIRST_PASS = 2
"""Samples of the first pass that each rank tells of."""


class Run(NamedTuple):
    """What a host must fit that brings samples."""

    settings: JobSettings
    ready: Mapping[str, Any]
    """What its ranks told of the program."""
    members: Sequence[NodeData]
    """All that it has had."""
    inventories: Mapping[str, Inventory]
    """What lives on nodes, as far as they were there since the run began or went on."""


def check_brought(node: str, inventory: Inventory, told: Mapping[str, Any], run: Run) -> None:
    """Refuse samples that a run cannot count.

    Args:
        node: that brings them.
        inventory: of it.
        told: by its rank, of the program.
        run: that it joins.

    Raises:
        ProgramError: with what the run counts on, or what is wrong with the samples.
    """
    brings = f"{node} brings {count(inventory.num_samples, 'sample')}"
    if counts := _counted_on(run):
        raise ProgramError(
            f"{brings}, which would make epochs longer, and {counts}. Let it hold none, or begin a new run with them."
        )
    if why := _unlike(inventory, told, run):
        raise ProgramError(f"{brings}, and {why}.")
    _check_new(node, brings, inventory, run)


def _counted_on(run: Run) -> str:
    """Return what rests on the number of steps that there are now; empty: nothing."""
    averages = averages_of(dict(run.ready))
    if run.settings.steps is not None:
        return f"the run was asked for {count(run.settings.steps, 'step')} in all (--steps)"
    if run.ready["has_scheduler"]:
        return "Program(scheduler=...) was made for the steps that there are now"
    if averages is not None and (averages.every == EPOCH or averages.start_epoch):
        return f"Program(averages={averages}) counts epochs of the steps that they have now"
    return ""


def _unlike(inventory: Inventory, told: Mapping[str, Any], run: Run) -> str:
    """Return in what samples are unlike those of the others; empty: in nothing that is known."""
    others = [each for each in run.inventories.values() if each.num_samples]
    if any(bool(each.keys) != bool(inventory.keys) for each in others):
        kinds = ("named files", "items") if inventory.keys else ("items", "named files")
        return f"they are {kinds[0]}, while those of the others are {kinds[1]}"
    mine, theirs = run.ready["first_pass"], told["first_pass"]
    if mine is None or inventory.num_samples < _FIRST_PASS:
        return ""
    if theirs is None:
        return "the program computes nothing from them, as it does from those of the others"
    modules, own = ([codec.decode(ModuleOutput, each).module for each in one["outputs"]] for one in (mine, theirs))
    return "" if modules == own else "the model calls other modules with them than with those of the others"


def _check_new(node: str, brings: str, inventory: Inventory, run: Run) -> None:
    """Refuse samples that another node has, or of which nobody can tell.

    Raises:
        ProgramError: with that node.
    """
    try:
        refuse_claimed_twice({**run.inventories, node: inventory})
    except ClusterError as error:
        raise ProgramError(str(error)) from error
    there = {*run.inventories, node}
    unseen = [each for each in run.members if each.num_samples and each.node not in there]
    same = next((each for each in unseen if inventory.keys or each.digest == inventory.digest), None)
    if same is not None:
        raise ProgramError(
            f"{brings}, and {same.node}, which is not there, may have had the same: nobody can tell. Bring "
            f"{same.node} back first."
        )


def first_counted(epochs: EpochSteps, step: int) -> int:
    """Return the first epoch in which samples count that are brought before a step: one under way keeps its own.

    So does the first one of a run: it has the samples that the run began with.
    """
    return epochs.epoch(step) if step and epochs.is_end(step) else epochs.epoch(step) + 1


def planned_from(run: PlacedRun, epochs: EpochSteps) -> int:
    """Return the step from which ranks train on the shares that are planned with: all that was brought counts."""
    total = count_samples(run, run.epochs[-1].from_epoch)
    first = next(each.from_epoch for each in run.epochs if count_samples(run, each.from_epoch) == total)
    return epochs.first_step(first)


def told_of(
    members: Sequence[NodeData], brought: Mapping[int, Spans], step: int, run: PlacedRun, run_steps: RunSteps
) -> list[str]:
    """Return what is said of samples that count from an epoch on.

    Args:
        members: all that the run has had.
        brought: what is new of it, by number.
        step: before which it was brought.
        run: the placement with it.
        run_steps: of the run with it.
    """
    epoch = first_counted(run_steps.by_epoch, step)
    longer = f"{count_samples(run, epoch):,} samples in {count(run_steps.by_epoch.steps(epoch), 'step')}"
    then = f"they count from epoch {epoch + 1} on, which has {longer}; the run has {run_steps.total_steps} steps then"
    return [
        f"{members[number].node} brings {num_samples(spans):,} samples: {then}" for number, spans in brought.items()
    ]


def gone(members: Sequence[NodeData], missing: Spans) -> list[str]:
    """Return what is said of samples that were to count in a later epoch, and are not there any more.

    Args:
        members: all that the run has had.
        missing: these samples.
    """
    pairs = zip(members, spans_of(members), strict=True)
    lost = ((member.node, common(missing, (own,))) for member, own in pairs)
    return [left_out(node, spans, "they are gone before their first epoch") for node, spans in lost if spans]


def left_out(node: str, spans: Spans, why: str) -> str:
    """Return what is said of samples of a node that do not count."""
    return f"note: {num_samples(spans):,} samples of {node} do not count: {why}"
