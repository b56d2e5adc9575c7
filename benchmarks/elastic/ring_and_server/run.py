"""Kills one of four hosts again and again: what that costs a ring, servers, a model cut in parts, and torchrun.

Each host that was killed is started again some seconds after the others have gone on.
"""

import argparse
import itertools
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
TORCHRUN = HERE.parent / "against_torchrun"
sys.path[:0] = [str(TORCHRUN), str(HERE.parent), str(HERE.parents[1])]
from elastic_run import TICK, ElasticRun, Pace, pace  # noqa: E402  a script's siblings are found only after this
from environment import known, stamp, write  # noqa: E402
from host_agents import WAIT_S  # noqa: E402
from hosts_at import Hosts  # noqa: E402
from torchrun_agents import EVERY, TorchrunAgents  # noqa: E402

from program import BATCH  # noqa: E402

SCRIPT = TORCHRUN / "program.py"
FEWEST, HOSTS, CHUNKS = 2, 4, 12
"""Chunks: as many for each host, whether four or three share them."""
READ_S = 0.004
"""That reading a sample takes: some 50 ms of a step on four hosts."""
SETTLED_STEPS = 10
"""After a change: more than the ledger waits for."""


@dataclass(frozen=True)
class Course:
    """What a contender has to play."""

    faults: int
    calm_s: float
    """Before each kill, and before the host comes back."""
    folder: Path
    environment: Mapping[str, str]


def nfold(strategy: str, course: Course) -> Iterator[dict[str, Any]]:
    """Kill the oldest host of an elastic run, again and again; its own ledger says what that cost."""
    flags = ("--nodes", f"{FEWEST}:{HOSTS}", "--chunks", str(CHUNKS), "--strategy", strategy, "--steps", "1000000")
    run = ElasticRun(SCRIPT, course.folder / "nfold", *flags, "--checkpoint-every", str(EVERY),
                     environment=course.environment)  # fmt: skip
    names = (f"host-{number}" for number in itertools.count())
    try:
        for _ in range(HOSTS):
            run.join(next(names))
        for _ in range(course.faults):
            run.expect(f"{HOSTS} hosts", lambda: len(run.training()) == HOSTS, WAIT_S)
            usual = _calm_pace(run, course.calm_s)
            earlier = len(run.members())
            run.kill(run.training()[0])
            run.expect("a loss", lambda earlier=earlier: len(run.members()) > earlier, WAIT_S)
            fewer = _calm_pace(run, course.calm_s)
            run.join(next(names))
            run.expect("a return", lambda earlier=earlier: len(run.members()) > earlier + 1, WAIT_S)
            loss, back = run.members()[earlier:]
            yield {
                "steps_per_s": 1 / usual.mean_s,
                "pause_s": loss["pause_s"],
                "steps_again": loss["steps_again"],
                "again_from": loss["again_from"],
                "lost_s": loss["samples_lost"] / BATCH * usual.median_s,
                "steps_per_s_with_one_fewer": 1 / fewer.mean_s,
                "return_pause_s": back["pause_s"],
                "return_boot_s": back["boot_s"],
                "return_lost_s": back["samples_lost"] / BATCH * fewer.median_s,
            }
    finally:
        run.close()


def _calm_pace(run: ElasticRun, calm_s: float) -> Pace:
    """Return what a step takes while nothing happens."""
    run.expect_step(run.last_step + SETTLED_STEPS, WAIT_S)
    begin = run.last_step
    TICK.wait(calm_s)
    run.expect_step(begin + SETTLED_STEPS, WAIT_S)
    return pace([line["at_s"] for line in run.steps() if line["step"] >= begin])


def torchrun(course: Course, *, in_memory: bool = False) -> Iterator[dict[str, Any]]:
    """Kill agents of torchrun, while the others go on."""
    nodes, kept = f"{FEWEST}:{HOSTS}", "memory" if in_memory else "a file"
    with TorchrunAgents(Hosts(), course.folder, nodes, course.environment, in_memory=in_memory) as agents:
        for number, usual, killed_at in _kills(agents, course):
            fewer = _calm_pace_of_agents(agents, HOSTS - 1, course.calm_s, killed_at)
            loss = agents.cost(killed_at)
            back_at = agents.join(number)
            agents.until_calm("a return", HOSTS, SETTLED_STEPS, back_at)
            back = agents.cost(back_at)
            yield {
                "steps_per_s": 1 / usual.mean_s,
                "pause_s": loss.pause_s,
                "steps_again": loss.steps_again,
                "again_from": kept,
                "lost_s": loss.pause_s + loss.steps_again * usual.median_s,
                "steps_per_s_with_one_fewer": 1 / fewer.mean_s,
                "return_pause_s": back.pause_s,
                "return_boot_s": agents.steps(number)[0]["at"] - back_at,
                "return_lost_s": back.pause_s + back.steps_again * fewer.median_s,
            }


def torchrun_of_all(course: Course) -> Iterator[dict[str, Any]]:
    """Kill agents of a torchrun that trains with all hosts or not at all: the others wait for the one that is lost."""
    with TorchrunAgents(Hosts(), course.folder, str(HOSTS), course.environment) as agents:
        for number, usual, killed_at in _kills(agents, course):
            TICK.wait(course.calm_s)
            back_at = agents.join(number)
            agents.until_calm("a return", HOSTS, SETTLED_STEPS, back_at)
            both = agents.cost(killed_at)
            yield {
                "steps_per_s": 1 / usual.mean_s,
                "pause_s": both.pause_s,
                "steps_again": both.steps_again,
                "again_from": "a file",
                "lost_s": both.pause_s + both.steps_again * usual.median_s,
                "return_boot_s": agents.steps(number)[0]["at"] - back_at,
            }


def _kills(agents: TorchrunAgents, course: Course) -> Iterator[tuple[int, Pace, float]]:
    """Kill an agent again and again, but the first one, which holds the rendezvous.

    Yields:
        Which, what a step took before, and when, in seconds since 1970.
    """
    for number in range(HOSTS):
        agents.join(number)
    for fault in range(course.faults):
        usual, number = _calm_pace_of_agents(agents, HOSTS, course.calm_s), 1 + fault % (HOSTS - 1)
        killed_at = time.time()
        agents.kill(number)
        agents.until_gone(number)
        yield number, usual, killed_at


def _calm_pace_of_agents(agents: TorchrunAgents, ranks: int, calm_s: float, since: float = 0.0) -> Pace:
    """Return what a step of so many ranks takes while nothing happens."""
    agents.until_calm(f"{ranks} ranks", ranks, SETTLED_STEPS, since)
    begin = len(agents.steps())
    TICK.wait(calm_s)
    return pace([line["at"] for line in agents.steps()[begin:]])


CONTENDERS: dict[str, Callable[[Course], Iterator[dict[str, Any]]]] = {
    **{strategy: partial(nfold, strategy) for strategy in ("ring", "ps", "hypergraph", "pipeline", "ps-async")},
    f"torchrun {FEWEST}:{HOSTS}": torchrun,
    f"torchrun {FEWEST}:{HOSTS}, in memory": partial(torchrun, in_memory=True),
    f"torchrun {HOSTS}": torchrun_of_all,
}
USUAL = ("ring", "ps", "hypergraph", f"torchrun {FEWEST}:{HOSTS}", f"torchrun {HOSTS}")


def main() -> None:
    """Play contenders one after the other, print what a fault costs each, and write result.json."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--only", nargs="+", choices=CONTENDERS, default=USUAL)
    options.add_argument("--faults", type=int, default=3, help="of each contender")
    options.add_argument("--calm-s", type=float, default=5.0, help="before each kill, and before a host comes back")
    options.add_argument("--millions", type=float, default=1.0, help="of parameters")
    given = options.parse_args()
    environment = {"MILLIONS": str(given.millions), "READ_S": str(READ_S), "OMP_NUM_THREADS": "1"}
    for name in given.only:
        which = {"millions": given.millions, "contender": name}
        with tempfile.TemporaryDirectory() as where:
            course = Course(given.faults, given.calm_s, Path(where), environment)
            found = [{**which, **stamp(), **row} for row in CONTENDERS[name](course)]
        print(name, json.dumps(medians(found)), flush=True)
        kept = [each for each in known(__file__).get("rows", []) if not which.items() <= each.items()]
        write({"rows": [*kept, *found]}, __file__)


def medians(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Return the median of each figure."""
    figures = [name for name, value in rows[0].items() if isinstance(value, float | int)]
    return {name: round(statistics.median(row[name] for row in rows), 3) for name in figures}


if __name__ == "__main__":
    main()
