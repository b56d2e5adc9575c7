"""compare: the same program under several strategies and numbers of workers, side by side."""

import contextlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Unpack

from nfold.core.report import Report
from nfold.errors import PlanError
from nfold.planning.strategies import SERVING, STRATEGY_NAMES
from nfold.verbs.folder import RunFolder, next_free
from nfold.verbs.job import Job, Observer
from nfold.verbs.options import CommonWishes, Options
from nfold.verbs.train import Silent, Source, find_source, name_of, play_to_end

SINGLE = "single"


@dataclass(frozen=True, kw_only=True, slots=True)
class Compared:
    """One run of a comparison."""

    name: str
    """Strategy and workers: `ring x4`."""
    folder: str
    report: Report


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """The runs of one comparison; the first is the plain single-device run that the others are measured against."""

    runs: tuple[Compared, ...]


def compare(
    program: Source,
    *,
    workers: Sequence[int] = (1, 2, 4),
    strategies: Sequence[str] = ("ring", "ps"),
    observer: Observer | None = None,
    **wishes: Unpack[CommonWishes],
) -> Comparison:
    """Run every strategy with every number of workers, one after another.

    One worker is one run whatever the strategy, and always the first: the plain single-device run, batch uncut. The
    others cut a batch alike, unless `chunks` or the program says how, so that their losses can be compared.

    Args:
        program: as for `train`.
        workers: numbers of worker ranks.
        strategies: names of strategies.
        observer: is shown what happens.
        wishes: other fields of Options; `out` is the folder of all the runs.

    Raises:
        NfoldError: as `train` does.
    """
    _check(workers, strategies)
    source = find_source(program)
    compared: list[Compared] = []
    with _parent(wishes.get("out"), name_of(source)) as parent:
        for name, count in _runs(workers, strategies):
            label = SINGLE if name == SINGLE else f"{name} x{count}"
            if observer is not None:
                observer.noted(f"{label} ..")
            options = _options(wishes, name, count, workers, parent)
            folder = RunFolder.create(options.out, label)
            alone = compared[0].report.samples_per_s if compared else None
            job = Job(source, options, observer or Silent(), folder=folder, alone_samples_per_s=alone)
            run = play_to_end(job)
            compared.append(Compared(name=label, folder=str(run.folder), report=run.report))
    return Comparison(runs=tuple(compared))


def _check(workers: Sequence[int], strategies: Sequence[str]) -> None:
    if not workers or min(workers) < 1:
        raise PlanError(f"-n {','.join(map(str, workers))}: every number of workers must be at least 1")
    for name in strategies:
        if name not in STRATEGY_NAMES:
            raise PlanError(f"unknown strategy {name!r}. Use some of: {', '.join(STRATEGY_NAMES)}")


def _runs(workers: Sequence[int], strategies: Sequence[str]) -> Iterator[tuple[str, int]]:
    yield SINGLE, 1
    for name in dict.fromkeys(strategies):
        if name != SINGLE:
            yield from ((name, count) for count in sorted(set(workers)) if count > 1)


def _options(wishes: CommonWishes, strategy: str, workers: int, every: Sequence[int], parent: Path) -> Options:
    mine: dict[str, Any] = dict(wishes)
    servers = wishes.get("servers", 0) if strategy in SERVING else 0
    mine.update(
        workers=workers,
        strategy=strategy,
        servers=min(servers, workers),
        out=parent / f"{strategy}-{workers}",
        default_chunks=None if strategy == SINGLE else _common_chunks(every),
    )
    return Options(**mine)


def _common_chunks(workers: Sequence[int]) -> int:
    """The fewest chunks that every number of workers can share equally, if they are not too many."""
    least = math.lcm(*workers)
    return least if least <= 2 * max(workers) else max(workers)


@contextlib.contextmanager
def _parent(out: str | Path | None, name: str) -> Iterator[Path]:
    """The folder of all the runs; it goes again if none of them left anything."""
    is_new = out is None or not Path(out).exists()
    parent = Path(out) if out is not None else next_free(f"{name}-compare")
    try:
        yield parent
    finally:
        if is_new:
            with contextlib.suppress(OSError):  # it holds runs, or was never made
                parent.rmdir()
