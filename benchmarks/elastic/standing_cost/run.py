"""Compares steps of a run whose hosts may come and go with those of one whose hosts stay, where nothing happens.

Four emulated nodes, round a ring. As root, on a machine at rest.
"""

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE.parents[1])]
from elastic_run import NfoldRun, Pace, pace  # noqa: E402  a script's siblings are found only after this
from environment import known, stamp, write  # noqa: E402

from nfold.verbs.run_folder.folder import RunFolder  # noqa: E402

SCRIPT = HERE.parent / "against_torchrun" / "program.py"
CLUSTER = '[[node]]\nname = "n"\ncount = 4\ncores = 0.45\nuplink = "{mbit} Mbit/s"\ndownlink = "{mbit} Mbit/s"\n'
STEPS = {100: 30, 1000: 100}
"""By the rate of the cards: some ten seconds each."""
MILLIONS = 0.5
"""Of parameters: 3 MB on each link and step."""
WARM_UP, TIMEOUT_S = 10, 180.0
STAYS = "stays"
WAYS = {
    STAYS: ("-n", "4"),
    "elastic": ("--nodes", "2:4"),
    "elastic, unprotected": ("--nodes", "2:4", "--protect", "off"),
}


def main() -> None:
    """Let all train in turn, print how much longer steps of elastic runs are, and write result.json."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--mbit", type=int, nargs="+", choices=STEPS, default=list(STEPS), help="of each card")
    options.add_argument("--steps", type=int, help="after the first few; as many as take some ten seconds unless given")
    given = options.parse_args()
    for mbit in given.mbit:
        with tempfile.TemporaryDirectory() as where:
            found = rounds(Path(where), mbit, given.steps or STEPS[mbit], given.rounds)
        rows = [{"mbit": mbit, "way": way, **compared(found, way), **stamp()} for way in WAYS]
        print(*map(json.dumps, rows), sep="\n", flush=True)
        kept = [each for each in known(__file__).get("rows", []) if each["mbit"] != mbit]
        write({"rows": [*kept, *rows]}, __file__)


def rounds(folder: Path, mbit: int, steps: int, count: int) -> dict[str, list[Pace]]:
    """Let each way train once a round, and another one begin in each round."""
    cluster = folder / "cluster.toml"
    cluster.write_text(CLUSTER.format(mbit=mbit))
    found: dict[str, list[Pace]] = {way: [] for way in WAYS}
    for number in range(count):
        ways = list(WAYS)
        for at, way in enumerate(ways[number % len(ways) :] + ways[: number % len(ways)]):
            found[way].append(trained(folder / f"run-{number}-{at}", cluster, steps, WAYS[way]))
    return found


def trained(folder: Path, cluster: Path, steps: int, way: tuple[str, ...]) -> Pace:
    """Train on all nodes; return what a step took after the first few: of its slowest rank, and of the whole run."""
    flags = ("--emulate", str(cluster), "--strategy", "ring", "--chunks", "4", "--steps", str(steps + WARM_UP))
    run = NfoldRun(SCRIPT, folder, *flags, "--checkpoint-every", "100000", *way,
                   environment={"MILLIONS": str(MILLIONS)})  # fmt: skip
    try:
        if run.process.wait(TIMEOUT_S):
            sys.exit(run.said.read_text()[-3000:])
    finally:
        run.close()
    slowest: dict[int, float] = {}
    for part in RunFolder.open(folder).trace().parts:
        slowest[part.step] = max(part.step_s, slowest.get(part.step, 0.0))
    whole = pace([line["at_s"] for line in run.steps()[WARM_UP - 1 :]])
    return Pace(statistics.median(step_s for step, step_s in slowest.items() if step >= WARM_UP), whole.mean_s)


def compared(found: dict[str, list[Pace]], way: str) -> dict[str, Any]:
    """Return what a way's steps took, and round by round how much that is of what they took where hosts stay."""
    row: dict[str, Any] = {}
    for field in Pace._fields:
        own, stays = ([getattr(each, field) for each in found[name]] for name in (way, STAYS))
        ratios = [mine / theirs for mine, theirs in zip(own, stays, strict=True)]
        name = field.removesuffix("_s")
        row |= {field: own, f"{name}_ratios": ratios, f"{name}_ratio": statistics.median(ratios)}
    return row


if __name__ == "__main__":
    main()
