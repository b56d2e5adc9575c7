"""How long until a program has learnt enough: architectures raced on emulated clusters, to a loss or to an accuracy.

    slow-node   the digits, one of four nodes 4 times slower: waiting for everybody against asynchronous servers
    digits      a parameter-heavy network on slow links: data parallelism against models cut in parts, to 97 %
    text        a language model of characters on the same links, to a fixed loss

Needs root, `ip` and `tc`.
"""

import argparse
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nfold
from nfold.analysis.measured.steps_to_loss import running_losses, steps_to_loss

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
from curves import lines, moments, named  # noqa: E402  a script's siblings are found only after this
from environment import known, stamp, write  # noqa: E402
from plots import chart  # noqa: E402

PROGRAMS = HERE.parent / "programs"
REACH = 8
"""Steps whose losses are averaged before they are held against the goal."""
MOST_POINTS = 40
"""Of a curve in result.json."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Race:
    """A program on a cluster, and what it shall come to."""

    program: str
    cluster: str
    strategies: tuple[str, ...]
    epochs: int
    steps_per_epoch: int
    loss: float | None = None
    accuracy: float | None = None


def nodes(cores: tuple[float, ...], link: str) -> str:
    """Return a cluster file."""
    return "\n".join(
        f'[[node]]\nname = "n{index}"\ncores = {each}\nmemory = "2 GiB"\nuplink = "{link}"\n'
        for index, each in enumerate(cores)
    )


PLACEMENTS = ("ring", "pipeline", "hybrid", "hypergraph", "auto")
RACES = {
    "slow-node": Race(
        program=str(HERE.parent.parent / "examples" / "digits.py"),
        cluster=nodes((0.5, 0.5, 0.5, 0.125), "100 Mbit/s"),
        strategies=("ring", "ps", "ps-async", "ssp", "auto"),
        epochs=10,
        steps_per_epoch=12,
        loss=0.3,
    ),
    "digits": Race(
        program=f"{PROGRAMS / 'heavy.py'}:judged",
        cluster=nodes((0.45,) * 4, "50 Mbit/s"),
        strategies=PLACEMENTS,
        epochs=14,
        steps_per_epoch=15,
        accuracy=0.97,
    ),
    "text": Race(
        program=str(PROGRAMS / "stdlib_text.py"),
        cluster=nodes((0.45,) * 4, "50 Mbit/s"),
        strategies=PLACEMENTS,
        epochs=2,
        steps_per_epoch=128,
        loss=2.3,
    ),
}


def run(race: Race, strategy: str, folder: Path) -> dict[str, Any]:
    """Train once and say when the goal was reached."""
    cluster = folder / "cluster.toml"
    cluster.write_text(race.cluster)
    trained = nfold.train(
        race.program,
        strategy=strategy,
        emulate=cluster,
        steps=race.epochs * race.steps_per_epoch,
        out=folder / f"run-{strategy}",
    )
    steps = [line for line in trained.history if not line["metrics"]]
    judged = [line for line in trained.history if line["metrics"]]
    means = running_losses([line["loss"] for line in steps], REACH)
    ends_s = [line["at_s"] for line in steps][REACH - 1 :]
    every = -(-len(means) // MOST_POINTS)
    return {
        "strategy": strategy,
        **stamp(),
        "chosen": trained.plan.strategy,
        "reached_s": _reached(race, steps, judged),
        "steps": len(steps),
        "step_s": trained.report.step_s.p50,
        "trained_s": steps[-1]["at_s"],
        "final_loss": means[-1],
        "final_metrics": judged[-1]["metrics"] if judged else {},
        "curve": [[round(at_s, 3), round(mean, 4)] for at_s, mean in zip(ends_s, means, strict=True)][::every],
        "accuracies": [[line["at_s"], line["metrics"].get("accuracy")] for line in judged],
    }


def _reached(race: Race, steps: list[dict[str, Any]], judged: list[dict[str, Any]]) -> float | None:
    """Seconds from the beginning of training; None if it never was."""
    if race.accuracy is not None:
        return next((line["at_s"] for line in judged if line["metrics"]["accuracy"] >= race.accuracy), None)
    assert race.loss is not None, "a race has one goal"
    needed = steps_to_loss([line["loss"] for line in steps], race.loss, REACH)
    return None if needed is None else steps[needed - 1]["at_s"]


def play(name: str, races: dict[str, Any]) -> None:
    """Race, print and write result.json after each run."""
    race, rows = RACES[name], []
    for strategy in race.strategies:
        with tempfile.TemporaryDirectory() as folder:
            rows.append(found := run(race, strategy, Path(folder)))
        reached = "never" if found["reached_s"] is None else f"{found['reached_s']:7.1f} s"
        print(
            f"{name:10} {strategy:10} reached {reached}  step {found['step_s'] * 1e3:7.1f} ms  "
            f"loss {found['final_loss']:.3f}  {found['final_metrics']}",
            flush=True,
        )
        races[name] = {"loss": race.loss, "accuracy": race.accuracy, "rows": rows}
        write({"races": races}, __file__)


def plot(name: str, race: dict[str, Any]) -> str:
    """Return a race as a chart for README.md."""
    return f"`{name}`:\n\n" + chart("seconds", moments(race), named(race), lines(race))


def main() -> None:
    """Race, or only plot what is known."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--races", default=",".join(RACES))
    options.add_argument("--plots", action="store_true", help="print charts of result.json and measure nothing")
    asked = options.parse_args()
    races: dict[str, Any] = known(__file__).get("races", {})
    for name in asked.races.split(","):
        if not asked.plots:
            play(name, races)
        if name in races:
            print(plot(name, races[name]), flush=True)


if __name__ == "__main__":
    main()
