"""How well shares follow speed: unlike nodes beside equal shares and beside each alone, and a node that slows down.

    unlike     nodes of 4 : 2 : 1 : 1, by speed, in equal shares, and each node by itself
    slowing    four equal nodes, one of which has half of its cores from a moment on

As root, on a machine at rest.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median
from typing import Any
from unittest.mock import patch

import nfold
from nfold.core.text.cluster_file import parse_cluster
from nfold.planning.reductions.data_parallel import even_owners
from nfold.verbs.running.observer import NullObserver

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1]))
from environment import write  # noqa: E402  a script's siblings are found only after this

NODE = '[[node]]\nname = "{name}"\ncores = {cores}\nuplink = "1 Gbit/s"\n'
UNLIKE = (0.8, 0.4, 0.2, 0.2)
EQUAL = (0.4, 0.4, 0.4, 0.4)
CHUNKS = 32
WARM_UP = 5


class Watch(NullObserver):
    """Notes when each step was done, and what was told."""

    def __init__(self) -> None:
        self.steps_s: list[float] = []
        self.told: list[tuple[float, str]] = []

    def stepped(self, done: Any) -> None:
        """Note when."""
        self.steps_s.append(time.perf_counter())

    def noted(self, text: str) -> None:
        """Note when, and what."""
        self.told.append((time.perf_counter(), text))

    def when(self, fragment: str) -> float:
        """When something was told.

        Raises:
            RuntimeError: it was not.
        """
        for at_s, text in self.told:
            if fragment in text:
                return at_s
        raise RuntimeError(f"nothing was told of {fragment!r}, but: {[text for _, text in self.told]}")

    def step_s(self, begin_s: float, end_s: float) -> float:
        """Median seconds of the steps between two moments."""
        here = [at_s for at_s in self.steps_s if begin_s <= at_s <= end_s]
        return median(later - earlier for earlier, later in pairwise(here))


def main() -> None:
    """Measure, print and write result.json."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--steps", type=int, default=120, help="of each run on unlike nodes")
    options.add_argument("--seconds", type=float, default=20.0, help="before and after the node slows down")
    chosen = options.parse_args()
    unlike, slowing = measure_unlike(chosen.steps), measure_slowing(chosen.seconds)
    print(unlike)
    print(slowing)
    write({"unlike": unlike, "slowing": slowing}, __file__)


def measure_unlike(steps: int) -> dict[str, Any]:
    """Train on nodes of 4 : 2 : 1 : 1 by speed and in equal shares, and on each of them alone."""
    by_speed = _measure(UNLIKE, steps)
    with equal_shares():
        equal = _measure(UNLIKE, steps)
    alone = [_measure((cores,), max(3 * WARM_UP, steps // 4))["samples_per_s"] for cores in UNLIKE]
    return {
        "by_speed": by_speed,
        "equal_shares": equal,
        "alone_samples_per_s": alone,
        "times_equal_shares": by_speed["samples_per_s"] / equal["samples_per_s"],
        "share_of_sum": by_speed["samples_per_s"] / sum(alone),
    }


def measure_slowing(seconds: float) -> dict[str, Any]:
    """Halve a node's cores while four equal ones train; return how long it took until shares fit again."""
    fault, watch = f"slow n-1 0.5@{seconds:g}s", Watch()
    _train(EQUAL, watch, steps=10**6, fault=[fault], stop_after=60.0 + 3 * seconds)
    slowed_s, balanced_s = watch.when(f"fault: {fault}: now"), watch.when("n-1 computes")
    return {
        "told": next(text for _, text in watch.told if text.startswith("n-1 computes")),
        "step_s_before": watch.step_s(slowed_s - seconds / 2, slowed_s),
        "step_s_slow": watch.step_s(slowed_s, balanced_s),
        "step_s_after": watch.step_s(balanced_s, watch.steps_s[-1]),
        "best_step_s_after": watch.step_s(slowed_s - seconds / 2, slowed_s) * len(EQUAL) / (len(EQUAL) - 0.5),
        "rebalanced_after_s": balanced_s - slowed_s,
        "changes": sum("gets" in text for _, text in watch.told),
    }


@contextmanager
def equal_shares() -> Iterator[None]:
    """Let every worker have as many chunks, whatever its speed."""

    def dealt(facts: Any, updated: float) -> list[tuple[int, ...]]:
        return [even_owners(facts.chunks or facts.workers, facts.workers)]

    with patch("nfold.planning.choosing.strategies.dealt_chunks", dealt):
        yield


def _measure(cores: Sequence[float], steps: int) -> dict[str, Any]:
    run = _train(cores, NullObserver(), steps=steps)
    parts = [part for part in run.trace.parts if part.step >= WARM_UP]
    ranks = range(len(run.plan.nodes))
    return {
        "samples_per_s": run.plan.batch_size / median(part.step_s for part in parts if part.rank == 0),
        "idle_share": [
            fmean(each.communication_s / each.step_s for each in parts if each.rank == rank) for rank in ranks
        ],
        "chunks": [next(iter(run.plan.placement.owners.values())).count(rank) for rank in ranks],
    }


def _train(cores: Sequence[float], watch: NullObserver, **wishes: Any) -> nfold.Run:
    written = "\n".join(NODE.format(name=f"n-{number}", cores=each) for number, each in enumerate(cores))
    with tempfile.TemporaryDirectory() as folder:
        return nfold.train(
            HERE / "program.py", emulate=parse_cluster(written, "balance"), observer=watch, chunks=CHUNKS,
            strategy="ring", out=Path(folder) / "run", checkpoint_every=10**6, **wishes,
        )  # fmt: skip


if __name__ == "__main__":
    main()
