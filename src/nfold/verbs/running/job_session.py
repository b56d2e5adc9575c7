"""Starts the session of a job: its coordinator, its ranks, and what hears them."""

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from nfold.core.job import JobSettings
from nfold.launch.template import Template
from nfold.program import Program, ProgramSource
from nfold.runtime.coordinator.coordinator import Coordinator
from nfold.runtime.coordinator.session import Session
from nfold.runtime.failures.silent_ranks import Patience
from nfold.verbs.options.job_record import Resumed
from nfold.verbs.options.option_checks import Options
from nfold.verbs.ranks.emulated_ranks import EmulatedRanks
from nfold.verbs.ranks.remote_hosts import RemoteHosts
from nfold.verbs.ranks.starting import find_ways, token_for
from nfold.verbs.run_folder.folder import RunFolder

if TYPE_CHECKING:
    import queue

    from nfold.runtime.control import events as ev


def session_of(
    source: ProgramSource | Program,
    options: Options,
    settings: JobSettings,
    folder: RunFolder | None,
    resumed: Resumed | None,
    *,
    emulated: EmulatedRanks | None,
    hosts: RemoteHosts | None,
    template: Template | None,
    patience: Patience,
    stop_in_s: float | None,
    tell: Callable[[str], None],
    events: "queue.SimpleQueue[ev.Event]",
) -> Session:
    """Return a session whose ranks start once it is entered.

    Args:
        source: of the program.
        options: as the user gave them.
        settings: what the coordinator goes by.
        folder: of the run; None: nothing is kept.
        resumed: where an earlier run stopped; None: it begins.
        emulated: where ranks live; None: in this machine itself, or on other hosts.
        hosts: where ranks live; None: on this machine.
        template: forks ranks that are processes of this machine; None: each is a program of its own.
        patience: with ranks that are silent.
        stop_in_s: seconds until the run must stop; None: it need not.
        tell: takes lines for the log.
        events: what ranks say is put there.
    """
    token = hosts.token if hosts else token_for(source, options)
    checkpoint = resumed.checkpoint if resumed else None
    coordinator = Coordinator(
        settings,
        cores=len(os.sched_getaffinity(0)),
        known=resumed.known if resumed else None,
        checkpoint=checkpoint.header if checkpoint else b"",
        first_step=checkpoint.step if checkpoint else 0,
        best=_best_so_far(settings, folder) if resumed else None,
        patience=patience,
    )
    launcher, control_server = find_ways(
        source,
        options,
        settings.world_size,
        emulated=emulated,
        hosts=hosts,
        template=template,
        log=folder.log if folder else None,
        token=token,
        events=events,
        tell=tell,
        spools=folder.spools() if folder else None,
    )
    return Session(
        coordinator,
        launcher,
        control_server,
        events,
        world_size=settings.world_size,
        token=token,
        log=tell,
        checkpoint=checkpoint,
        kept_last=folder.checkpoint if folder else lambda: None,
        stop_in_s=stop_in_s,
        stop_after_s=options.stop_after_s or 0.0,
    )


def _best_so_far(settings: JobSettings, folder: RunFolder | None) -> float | None:
    """Return the value of the best model that the folder holds, if it is the best at the same."""
    keep = settings.kept
    best = folder.best() if folder is not None and keep is not None else None
    return best["value"] if best is not None and keep is not None and best["metric"] == keep.metric else None
