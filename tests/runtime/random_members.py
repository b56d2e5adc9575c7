"""Runs with --exact on ranks that are threads, whose members come, leave, die, stall and are cut off at random."""

import random
import threading
import time
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import Dataset

from nfold.core.options.host_range import HostRange
from nfold.program import Program
from nfold.verbs.options.option_checks import Options
from nfold.verbs.run_folder.folder import RunFolder
from nfold.verbs.running.observer import NullObserver
from nfold.verbs.running.run import run_of
from nfold.verbs.running.run_job import Job

CHUNKS, MOST = 4, 4
KINDS = ("join", "leave", "kill", "stall", "silence", "part")
"""The last three: a rank stops for a moment; a rank hears nothing for a moment; some lose all ways to the others."""
LIVELY = ("join", "stall", "silence")
"""Those after which everybody is still there."""
MOMENT_S = 0.3
State = dict[str, torch.Tensor]


@dataclass(frozen=True, slots=True)
class Disturbed:
    """What a run came to, and what happened to it."""

    state: State
    steps: int
    events: tuple[str, ...]


class Stalling(Dataset):  # type: ignore[type-arg]
    """Samples whose next reader stops for a moment, where it is told to."""

    def __init__(self, samples: Any) -> None:
        self._samples, self._stalls = samples, threading.Semaphore(0)

    def stall(self) -> None:
        self._stalls.release()

    def __len__(self) -> int:
        return len(self._samples)

    def __getitem__(self, index: int) -> Any:
        if self._stalls.acquire(blocking=False):
            time.sleep(MOMENT_S)
        return self._samples[index]


class _Plans(NullObserver):
    def __init__(self) -> None:
        self.worlds: list[int] = []

    def planned(self, planned: Any, folder: Any) -> None:
        self.worlds.append(planned.plan.workers)


def disturbed(mine: Program, folder: Path, strategy: str, seed: int, num_events: int = 4) -> Disturbed:
    """Play a run with so many random events, each followed by one to three steps."""
    chosen, told, samples = random.Random(seed), _Plans(), Stalling(mine.train_data())
    options = Options(
        workers=2, strategy=strategy, chunks=CHUNKS, steps=10**6, evaluate=False, exact=True, checkpoint_every=2
    )
    mine = replace(mine, train_data=lambda: samples)
    job = Job(mine, options, told, folder=RunFolder.create(folder, ""), lockstep=True)
    job._settings = replace(job._settings, hosts=HostRange(1, MOST))
    steps, done = job.play(), []
    last = next(steps).step
    for _ in range(num_events):
        here = job.session._coordinator._membership.ranks
        kind, planned = _next_kind(chosen, len(here)), len(told.worlds)
        _let(kind, job, here, samples, chosen)
        done.append(kind)
        while kind not in ("stall", "silence") and len(told.worlds) == planned:
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
    possible = [kind for kind in KINDS if (num_here < MOST if kind == "join" else num_here > 1 or kind in LIVELY)]
    return chosen.choice(possible)


def _let(kind: str, job: Job, here: tuple[int, ...], samples: Stalling, chosen: random.Random) -> None:
    """Let something happen. Whoever dies does so as a kill does it: its connections are gone, and nobody was told."""
    session, member = job.session, chosen.choice(here)
    network = session._launcher._finish.__self__._network
    if kind == "join":
        session.request()
    elif kind == "leave":
        session.release(member)
    elif kind == "kill":
        network.connections(member).abort()
        session._control_server.far_ends[member].close()
    elif kind == "stall":
        samples.stall()
    elif kind == "silence":
        network.connections(member).soon(lambda: time.sleep(MOMENT_S))
    else:
        some = chosen.sample(here, chosen.randint(1, len(here) - 1))
        for one, other in product(some, set(here) - set(some)):
            network.connections(one).hear_loss(other, "the way there is cut")
            network.connections(other).hear_loss(one, "the way there is cut")
