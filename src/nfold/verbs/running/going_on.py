"""What a run goes on with: what it was begun with, where it stopped, and what may be asked for otherwise."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from nfold.core.job import Begun, Known
from nfold.core.options.host_range import is_range
from nfold.core.options.run_options import LastingOptions, shared
from nfold.core.residency import PlacedData, spans_of
from nfold.core.text.units import count
from nfold.errors import CheckpointError, PlanError
from nfold.planning.choosing.strategies import AUTO, PLACING, SERVING, Single
from nfold.planning.residency.epoch_steps import EpochSteps
from nfold.planning.residency.model.spans import common, union
from nfold.planning.residency.resident_order import epoch_steps
from nfold.verbs.options.job_record import JobRecord, Resumed
from nfold.verbs.options.option_checks import Options, Wishes, whole_numbers
from nfold.verbs.run_folder.files import MODEL
from nfold.verbs.run_folder.folder import RunFolder
from nfold.verbs.run_folder.missed_best import keep_missed_best


def resumed_of(folder: RunFolder, wishes: Wishes, num_back: int = 0) -> tuple[Options, Resumed]:
    """Return the options of a run that goes on, and where it stopped.

    Args:
        folder: of the run.
        wishes: that differ from those that it was begun with.
        num_back: hosts of its that held; it begins with all of them.

    Raises:
        PlanError: nothing is left to do, or something is asked for that would make it another run.
        CheckpointError: its folder lacks what it takes.
    """
    record, known = folder.record(), folder.known()
    checkpoint = folder.checkpoint()
    step = checkpoint.step if checkpoint else 0
    if known.plan is None:
        raise CheckpointError(f"{folder.path} holds no plan")
    options = resumed_options(folder, known.plan.chunks, wishes)
    if options.hosts is not None and num_back > options.hosts.least:
        options = replace(options, nodes=num_back, workers=num_back)
    total = options.steps or record.total_steps
    if checkpoint is not None:
        keep_missed_best(folder, checkpoint)
    if checkpoint is not None and step >= total:
        folder.ensure_model(checkpoint)
        is_scheduled = record.recipe is not None and record.recipe.has_scheduler
        raise PlanError(_tell_complete(folder, step, total, is_scheduled=is_scheduled))
    history, placed = folder.history(until=step), folder.placed()
    same = _ways(options) == _ways(record) and _lives_there(known, options.rank_nodes)
    same = same and (placed is None or placed.runs[-1].nodes == known.plan.nodes)  # it may be written before its plan
    batch_size = known.plan.batch_size
    begun = Begun(
        batch_size=batch_size,
        steps_per_epoch=record.steps_per_epoch,
        recipe=record.recipe,
        is_evaluated=_is_evaluated(history, step, epochs_of(folder, batch_size)),
        placed=placed,
    )
    return options, Resumed(known=known if same else None, begun=begun, checkpoint=checkpoint, history=history)


def epochs_of(folder: RunFolder, batch_size: int) -> EpochSteps:
    """Return which steps of a run belong to which epoch."""
    placed = folder.placed()
    return EpochSteps.even(folder.record().steps_per_epoch) if placed is None else epoch_steps(placed.runs, batch_size)


def _lives_there(known: Known, rank_nodes: Sequence[str]) -> bool:
    """Whether what is known is of the emulated nodes that ranks live on: others may have come and gone."""
    names = {node.name for node in known.cluster.nodes}
    return known.plan is None or (
        names.issuperset(rank_nodes) and known.plan.nodes[: len(rank_nodes)] == rank_nodes[: known.plan.world_size]
    )


def _is_evaluated(history: list[dict[str, Any]], step: int, epochs: EpochSteps) -> bool:
    """Whether what is due after a step was done; at the start and within an epoch nothing is."""
    return not epochs.is_end(step) or step == 0 or any(line["step"] == step and line["metrics"] for line in history)


def _tell_complete(folder: RunFolder, step: int, total: int, *, is_scheduled: bool) -> str:
    lasting = ", as far as its schedule of the learning rate lasts" if is_scheduled else ""
    model = f"{folder.path / MODEL} holds the model"
    if step > total:
        return (
            f"--steps {total}: the run in {folder.path} has done {step} steps already, and {model}. "
            f"Use more --steps{lasting}."
        )
    return (
        f"the run in {folder.path} is complete: {step} of {total} steps are done, and {model}. "
        f"Use more --steps to make it longer{lasting}."
    )


def _ways(wishes: Options | JobRecord) -> tuple[object, ...]:
    """What a plan depends on, of what may differ when a run goes on."""
    places = (wishes.workers, wishes.servers, wishes.emulated, wishes.on, wishes.device, wishes.place)
    return *places, wishes.strategy, wishes.staleness, wishes.staleness_aware


def resumed_options(folder: RunFolder, chunks: int, wishes: Wishes) -> Options:
    """Return the options of a run that goes on: those that it was begun with, and what is asked for now.

    Args:
        folder: of the run.
        chunks: of its plan.
        wishes: that differ.

    Raises:
        PlanError: something is asked for that would make the rest of it another run.
    """
    record = folder.record()
    _refuse_changes(folder, record, wishes)
    placed = folder.placed()
    if placed is not None:
        return _placed_options(folder, record, placed, wishes)
    asked = wishes.get("chunks")
    if asked is not None and asked != chunks:
        raise PlanError(
            f"the run was begun with {count(chunks, 'chunk')}, and their number is part of its result. "
            f"Leave out --chunks {asked}."
        )
    recorded, given = _recorded(folder, record), _given(wishes)
    recorded |= _range_of(given, record)
    saved = Options(**recorded, chunks=chunks)
    if given.get("workers", 1) > chunks and given.get("strategy", record.strategy) not in (AUTO, Single.name, *PLACING):
        raise PlanError(
            f"the run was begun with {count(chunks, 'chunk')}, too few for {given['workers']} workers. "
            f"Use -n {chunks}{' or fewer' if chunks > 1 else ''}. Where a model can be cut among more workers, "
            f"--strategy {PLACING[0]} does that."
        )
    if given.get("strategy", AUTO) not in (*SERVING, AUTO):
        given.setdefault("servers", 0)
    if given.get("strategy", record.strategy) != record.strategy:
        given = {"staleness": None, "staleness_aware": False, **given}
    return replace(saved, **given)


def _placed_options(folder: RunFolder, record: JobRecord, placed: PlacedData, wishes: Wishes) -> Options:
    """Return the options of a run whose data live on nodes: each node that trains has a chunk."""
    given, recorded = _given(wishes), _recorded(folder, record)
    if wishes.get("chunks") is not None:
        raise PlanError(
            "with data that live on nodes, each node that trains has a chunk of every batch. "
            f"Leave out --chunks {wishes['chunks']}."
        )
    recorded |= _range_of(given, record)
    if given.get("emulate") is not None:
        recorded |= {"workers": None, "emulate": None}  # a rank for each node, however many there are now
    elif record.emulated is not None and record.nodes is not None:
        recorded["workers"] = None  # as many as were there last, which may not be the first of the file
    wished = recorded | given
    options = Options(**wished | {"fault": ()})  # faults are checked once it is known who begins
    if options.emulated is None or options.hosts is None:
        return Options(**wished)
    known = {member.node for member in placed.members}
    strangers = [node.name for node in options.emulated.nodes if node.num_samples and node.name not in known]
    return Options(**wished | {"strangers": tuple(strangers), "holders": _holders(placed)})


def _holders(placed: PlacedData) -> tuple[str, ...]:
    """Return the nodes that held what a run trains on: those that trained last, whose own samples count, and others."""
    last = placed.runs[-1]
    spans = [span for rank in last.epochs[-1].by_rank for span in (*rank.own, *rank.arriving)]
    lived = zip(placed.members, spans_of(placed.members), strict=True)
    own = [member.node for member, each in lived if common((each,), union(spans))]
    return tuple(dict.fromkeys((*last.nodes, *own, *(node for run in reversed(placed.runs) for node in run.nodes))))


def _range_of(given: dict[str, Any], record: JobRecord) -> dict[str, Any]:
    """Return what hosts that come and go, as is asked for now, change of a record."""
    if not is_range(given.get("nodes")):
        return {}
    hosts = {"nodes": given["nodes"], "on": given.get("on", record.on), "listen": given.get("listen")}
    return {"workers": None, "servers": 0, **hosts, "fault": given.get("fault", ())}


def _recorded(folder: RunFolder, record: JobRecord) -> dict[str, Any]:
    kept = {"out": folder.path, "emulate": record.emulated, "tensorboard": record.tensorboard}
    return shared(LastingOptions, record) | kept


def _given(wishes: Wishes) -> dict[str, Any]:
    given = {key: value for key, value in wishes.items() if value is not None and key != "out"}
    return given | whole_numbers(given)


def _refuse_changes(folder: RunFolder, record: JobRecord, wishes: Wishes) -> None:
    """Refuse what would make the rest of a run another run."""
    seed, out = wishes.get("seed"), wishes.get("out")
    if wishes.get("exact") and not record.exact:
        raise PlanError("the run was begun without --exact, and what it has summed so far is not exact. Leave it out.")
    if seed is not None and seed != record.seed:
        begun = "the program's seed" if record.seed is None else f"seed {record.seed}"
        raise PlanError(f"the run was begun with {begun}, and it is part of its result. Leave out --seed {seed}.")
    if out is not None and Path(out).resolve() != folder.path.resolve():
        raise PlanError(f"a resumed run goes on in its own folder, {folder.path}. Leave out --out {out}.")
