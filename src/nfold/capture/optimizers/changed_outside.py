"""Finds what the steps of an optimizer change outside of it: globals, closures, attributes of classes."""

from collections.abc import Iterator
from functools import partial

from nfold.capture.optimizers.lost_state import LONG, tell_shared
from nfold.capture.optimizers.optimizer_runs import MORE, SPLITS, Run, Subject, same
from nfold.capture.side_effects.shared_state import Watch, places_of_optimizer
from nfold.errors import ProgramError


def shared_by(subject: Subject) -> tuple[str, ...]:
    """Return what steps change of what all optimizers of a process share, where nothing comes of it.

    Raises:
        ProgramError: steps come out otherwise when another optimizer steps in between.
    """
    moved = tuple(dict.fromkeys(_moved(subject)))
    if moved:
        through, one, stranger = Run(subject, subject.values), Run(subject, subject.values), _other(subject)
        through.play_to(LONG)
        for step in range(LONG):
            one.play_to(step + 1)
            stranger.play_to(step + 1)
        if not same(through, one):
            raise ProgramError(tell_shared(subject.kind, moved))
    return moved


def _moved(subject: Subject) -> Iterator[str]:
    """Yield the names of what steps change outside of their optimizer.

    Played twice, with other weights: what the first step puts into a dict may be a cache, whose content stays.
    """
    for run in (Run(subject, subject.values), _other(subject)):
        watch = Watch(partial(places_of_optimizer, run.optimizer))
        watch.look()
        for step in range(SPLITS[1] + MORE):
            run.play_to(step + 1)
            watch.look(grows=step == 0)
        yield from watch.moved


def _other(subject: Subject) -> Run:
    return Run(subject, [(name, value + 0.5) for name, value in subject.values])
