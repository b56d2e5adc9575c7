"""How a run was started and where it stopped, which is what it takes to go on with it, and what to type for that."""

import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from nfold.core.cluster import Cluster
from nfold.core.job import Begun, Known, Recipe
from nfold.core.options.run_options import LastingOptions, shared
from nfold.errors import CheckpointError
from nfold.program import ProgramSource
from nfold.runtime.checkpoint.state_file import StoredState
from nfold.runtime.control.commands import Planned
from nfold.verbs.options.option_checks import Options


@dataclass(frozen=True, kw_only=True, slots=True)
class JobRecord(LastingOptions):
    """What it takes to start a run again."""

    source: str
    """FILE.py:function."""
    workers: int
    nodes: str | None = None
    """MIN:MAX, where hosts come and go; None: they stay the same."""
    listen: str | None = None
    """With `nodes`: where they join by hand."""
    waits: str = ""
    """With `nodes`: flags that say what a lost host may cost, and how long all wait for one, but for usual ones."""
    total_steps: int
    steps_per_epoch: int
    """Of the epochs that come last: where hosts bring samples, later ones have more."""
    emulated: Cluster | None = None
    tensorboard: str | None = None
    """Absolute."""
    recipe: Recipe | None = None
    has_checkpoint: bool = False
    """Whether one was written: if it is not there, it was lost."""
    unkept: str = ""
    """Why the run cannot be gone on with, whatever checkpoint there is; empty if it can."""


def record_of(
    source: ProgramSource, options: Options, planned: Planned, *, has_checkpoint: bool, unkept: str
) -> JobRecord:
    """Return what it takes to start a run again, once it is planned.

    Args:
        source: where the program is written.
        options: of the run.
        planned: the plan, and what follows from it.
        has_checkpoint: whether there is one to go on from.
        unkept: why no checkpoint brings all back; empty: each does.
    """
    # Members may have joined: the plan is for all of them.
    ranks = {
        "workers": max(options.workers, planned.plan.workers),
        "servers": max(options.servers, planned.plan.servers),
    }
    return JobRecord(
        **shared(LastingOptions, options) | ranks,
        source=str(source),
        total_steps=planned.total_steps,
        steps_per_epoch=planned.epochs.latest,
        nodes=str(options.hosts) if options.hosts else None,
        listen=options.listen if options.hosts else None,
        waits=options.typed_waits if options.hosts else "",
        emulated=options.emulated,
        tensorboard=None if options.tensorboard is None else str(options.tensorboard),
        recipe=planned.recipe,
        has_checkpoint=has_checkpoint,
        unkept=unkept,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Resumed:
    """Where an earlier run stopped, and what it had settled."""

    known: Known | None
    """None: measure and plan anew, because the ranks are others."""
    begun: Begun
    checkpoint: StoredState | None
    history: list[dict[str, Any]]

    def on_hosts(self, cluster: Cluster) -> "Resumed":
        """Return it for other hosts: what was measured and planned for the earlier ones is left out."""
        known = self.known
        is_same = known is not None and _sizes(known.cluster) == _sizes(cluster)
        return self if known is None or is_same else replace(self, known=None)


def _sizes(cluster: Cluster) -> list[tuple[str, float]]:
    return [(node.name, node.cores) for node in cluster.nodes]


def resume_command(path: Path, record: JobRecord | None) -> str:
    """Return the command that goes on with the run of a folder.

    What MPI has started, MPI starts again; hosts that came and went come and go again.

    Args:
        path: of the folder.
        record: of the run; None: there is none yet.
    """
    alone = f"nfold train --resume {shlex.quote(str(path))}"
    if record is None:
        return alone
    if record.on == "mpi":
        return f"mpirun -np {record.workers + record.servers} {alone}"
    given = {"--nodes": record.nodes, "--listen": record.listen}
    typed = [f"{flag} {shlex.quote(value)}" for flag, value in given.items() if value is not None]
    return " ".join([alone, *typed, *([record.waits] if record.waits else [])])


def refuse_unkept(path: Path, record: JobRecord) -> None:
    """Refuse to go on with a run whose checkpoints lack something that its results follow from.

    Raises:
        CheckpointError: this is one.
    """
    if record.unkept:
        raise CheckpointError(f"the run in {path} cannot be gone on with: {record.unkept} Then begin a new run.")


def tell_going_on(path: Path, record: JobRecord, *, is_complete: bool) -> str:
    """Return the end of a sentence that says how the run of a folder goes on; empty: it cannot."""
    resume = f", or --resume {shlex.quote(str(path))}"
    if record.unkept:
        return ""
    if not is_complete:
        return f"{resume} to go on with it"
    is_scheduled = record.recipe is not None and record.recipe.has_scheduler
    return "" if is_scheduled else f"{resume} with more --steps: it is complete"
