"""Runs with --exact on ranks that are threads, to which members come, leave and die at random."""

import random
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from nfold.core.options.host_range import HostRange
from nfold.program import Program
from nfold.verbs.options.option_checks import Options
from nfold.verbs.run_folder.folder import RunFolder
from nfold.verbs.running.observer import NullObserver
from nfold.verbs.running.run import run_of
from nfold.verbs.running.run_job import Job

CHUNKS, MOST = 4, 4
KINDS = ("join", "leave", "kill")
State = dict[str, torch.Tensor]


@dataclass(frozen=True, slots=True)
class Disturbed:
    """What a run came to, and what happened to it."""

    state: State
    steps: int
    events: tuple[str, ...]


class _Plans(NullObserver):
    def __init__(self) -> None:
        self.worlds: list[int] = []

    def planned(self, planned: Any, folder: Any) -> None:
        self.worlds.append(planned.plan.workers)


def disturbed(mine: Program, folder: Path, strategy: str, seed: int, num_events: int = 4) -> Disturbed:
    """Play a run with so many random events, each followed by one to three steps."""
    chosen, told = random.Random(seed), _Plans()
    options = Options(
        workers=2, strategy=strategy, chunks=CHUNKS, steps=10**6, evaluate=False, exact=True, checkpoint_every=2
    )
    job = Job(mine, options, told, folder=RunFolder.create(folder, ""), lockstep=True)
    job._settings = replace(job._settings, hosts=HostRange(1, MOST))
    steps, here, done = job.play(), [0, 1], []
    last = next(steps).step
    for number in range(num_events):
        kind = _next_kind(chosen, len(here))
        if kind == "join":
            here += job.session.request()
        else:
            member = here.pop(chosen.randrange(len(here)))
            (job.session.release if kind == "leave" else _killing(job))(member)
        done.append(kind)
        while len(told.worlds) < number + 2:
            last = next(steps).step
        for _ in range(chosen.randint(1, 3)):
            last = next(steps).step
    steps.close()
    return Disturbed(run_of(job).state_dict(), last, tuple(done))


def undisturbed(mine: Program, folder: Path, steps: int) -> State:
    """Play as many steps on one device."""
    options = Options(
        workers=1,
        strategy="single",
        chunks=CHUNKS,
        steps=steps,
        evaluate=False,
        exact=True,
        debug=True,
        checkpoint_every=0,
    )
    job = Job(mine, options, NullObserver(), folder=RunFolder.create(folder, ""))
    list(job.play())
    return run_of(job).state_dict()


def unlike(one: State, other: State) -> list[str]:
    """Return the tensors that differ in a bit."""
    assert set(one) == set(other)
    return [name for name, tensor in one.items() if not torch.equal(tensor, other[name])]


def _next_kind(chosen: random.Random, num_here: int) -> str:
    possible = [kind for kind in KINDS if (num_here < MOST if kind == "join" else num_here > 1)]
    return chosen.choice(possible)


def _killing(job: Job) -> Any:
    """Return what ends a member as a kill does: its connections are gone, and nobody was told before."""

    def kill(member: int) -> None:
        session = job.session
        network = session._launcher._finish.__self__._network
        network.connections(member).abort()
        session._control_server.far_ends[member].close()

    return kill
