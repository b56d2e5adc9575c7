"""What a change of hosts costs: nfold, torchrun with a file and in memory, torchft, and stopping to go on with others.

    3       a third host joins two, leaves, joins again and is killed
    2to4    two hosts join two at once
    8to5    three of eight hosts leave at once, announced
    1to3    two hosts join one that trains alone, at once

`--change` says which.
"""

import argparse
import itertools
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parents[1])]
from elastic_run import ElasticRun, NfoldRun, pace  # noqa: E402  a script's siblings are found only after this
from environment import known, stamp, write  # noqa: E402
from host_agents import WAIT_S, HostAgents  # noqa: E402
from hosts_at import LOOPBACK, Hosts, hosts_at  # noqa: E402
from torchft_hosts import TorchftHosts, has_torchft  # noqa: E402
from torchrun_agents import EVERY, TorchrunAgents  # noqa: E402

from program import BATCH  # noqa: E402

SCRIPT = HERE / "program.py"
TORCHFT = Path(os.environ.get("TORCHFT_PYTHON", "~/torchft/bin/python")).expanduser()
"""Of the environment that it is installed in: see the README."""
CALM_STEPS = 40
"""Between two events, unless told otherwise."""
_TOLD = {"join": "", "leave": " announced", "kill": " by SIGKILL"}


@dataclass(frozen=True)
class Event:
    """Hosts that come or go at once."""

    how: Literal["join", "leave", "kill"]
    before: int
    """Hosts that train."""
    after: int

    @property
    def name(self) -> str:
        """As in a row of the result."""
        return f"{self.before} to {self.after}{_TOLD[self.how]}"

    @property
    def numbers(self) -> range:
        """Of the hosts that come or go: the last ones."""
        return range(*sorted((self.before, self.after)))


CHANGES = {
    "3": (Event("join", 2, 3), Event("leave", 3, 2), Event("join", 2, 3), Event("kill", 3, 2)),
    "2to4": (Event("join", 2, 4),),
    "8to5": (Event("leave", 8, 5),),
    "1to3": (Event("join", 1, 3),),
}


@dataclass(frozen=True)
class Course:
    """What a contender has to play."""

    events: tuple[Event, ...]
    calm_steps: int
    """Before each of them."""
    checkpoint_every: int
    """Steps, of nfold."""
    hosts: Hosts
    folder: Path
    environment: Mapping[str, str]

    @property
    def nodes(self) -> str:
        """The fewest and the most hosts, as both commands take them."""
        return f"{min(counts(self.events))}:{max(counts(self.events))}"


def counts(events: Iterable[Event]) -> set[int]:
    """Return all numbers of hosts that train at a time."""
    return {count for event in events for count in (event.before, event.after)}


def nfold(course: Course, strategy: str = "ring") -> Iterator[dict[str, Any]]:
    """Let hosts join, leave and be killed; its own ledger says what that cost."""
    hosts = course.hosts
    flags = ("--nodes", course.nodes, "--strategy", strategy, "--steps", "1000000")
    flags += ("--checkpoint-every", str(course.checkpoint_every))
    run = ElasticRun(SCRIPT, course.folder / "nfold", *flags, at=f"{hosts.address}:0", environment=course.environment)
    names = (f"host-{number}" for number in itertools.count())
    try:
        for number in range(course.events[0].before):
            run.join(next(names), hosts.inside(number))
        for event in course.events:
            run.expect(f"{event.before} hosts", lambda event=event: len(run.training()) == event.before, WAIT_S)
            run.expect_step(run.last_step + course.calm_steps, WAIT_S)
            step_s = pace([line["at_s"] for line in run.steps()[-course.calm_steps :]]).median_s
            earlier = len(run.members())
            if event.how == "join":
                for number in event.numbers:
                    run.join(next(names), hosts.inside(number))
            else:
                for name in run.training()[event.after :]:
                    (run.leave if event.how == "leave" else run.kill)(name)
            expected = earlier + len(event.numbers)
            run.expect(event.name, lambda expected=expected: len(run.members()) >= expected, WAIT_S)
            yield {**_summed(event, run.members()[earlier:]), "step_s": step_s}
    finally:
        run.close()


def _summed(event: Event, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Sum the rows of the ledger for hosts that came or went; those that did so at the same step share a pause."""
    pauses = {row["step"]: row["pause_s"] for row in rows}
    return {
        "event": event.name,
        "pause_s": sum(pauses.values()),
        "pauses_s": list(pauses.values()),
        "launch_to_first_step_s": max((row["boot_s"] for row in rows if row["boot_s"] is not None), default=None),
        "samples_again": sum(row["samples_at_stake"] for row in rows),
        "samples_lost": sum(row["samples_lost"] for row in rows),
    }


def torchrun(course: Course, *, in_memory: bool = False) -> Iterator[dict[str, Any]]:
    """Let agents of torchrun join, leave and be killed."""
    with TorchrunAgents(course.hosts, course.folder, course.nodes, course.environment, in_memory=in_memory) as agents:
        yield from _played(agents, course)


def torchft(course: Course) -> Iterator[dict[str, Any]]:
    """Let hosts of torchft join, leave and be killed."""
    fewest = min(counts(course.events))
    with TorchftHosts(TORCHFT, course.hosts, course.folder, fewest, course.environment) as agents:
        yield from _played(agents, course)


def _played(agents: HostAgents, course: Course) -> Iterator[dict[str, Any]]:
    for number in range(course.events[0].before):
        agents.join(number)
    for event in course.events:
        agents.until_calm(f"calm before {event.name}", event.before, course.calm_steps)
        begun_at = time.time()
        launched_at = [_move(agents, event.how, number) for number in event.numbers]
        agents.until_calm(event.name, event.after, course.calm_steps, begun_at)
        cost = agents.cost(begun_at, len(event.numbers))
        again = cost.steps_again * BATCH
        yield {
            "event": event.name,
            "pause_s": cost.pause_s,
            "launch_to_first_step_s": _boot_s(agents, event, launched_at),
            "samples_again": again,
            "samples_lost": cost.pause_s / cost.step_s * BATCH + again,
            "step_s": cost.step_s,
        }
        if event.how != "join":
            for number in event.numbers:
                agents.until_gone(number)


def _move(agents: HostAgents, how: str, number: int) -> float:
    """Let a host join, leave or be killed; return when, in seconds since 1970."""
    if how == "join":
        return agents.join(number)
    (agents.leave if how == "leave" else agents.kill)(number)
    return time.time()


def _boot_s(agents: HostAgents, event: Event, launched_at: list[float]) -> float | None:
    """Return the longest time from the launch of a host to its first step; None: none was launched."""
    if event.how != "join":
        return None
    launches = zip(event.numbers, launched_at, strict=True)
    return max(agents.steps(number)[0]["at"] - launched for number, launched in launches)


def stop_and_copy(course: Course) -> Iterator[dict[str, Any]]:
    """Stop the run, and go on from its checkpoint with others: each event once, but kills."""
    where = course.folder / "stopped"
    flags = ("--on", "local", "--strategy", "ring", "--steps", "1000000")
    first = ("--nodes", str(course.events[0].before), "--chunks", str(max(counts(course.events))))
    run = NfoldRun(SCRIPT, where, *flags, *first, environment=course.environment)
    try:
        for event in dict.fromkeys(event for event in course.events if event.how != "kill"):
            run.expect_step(run.last_step + course.calm_steps, WAIT_S)
            step_s = pace([line["at_s"] for line in run.steps()[-course.calm_steps :]]).mean_s
            stopped_at = time.time()
            run.process.send_signal(signal.SIGINT)
            run.process.wait(WAIT_S)
            step, others = run.last_step, ("--nodes", str(event.after))
            run = NfoldRun(SCRIPT, where, *flags, *others, environment=course.environment, goes_on=True)
            run.expect_step(step + 1, WAIT_S)
            pause_s = time.time() - stopped_at
            yield {"event": event.name, "pause_s": pause_s, "launch_to_first_step_s": pause_s, "samples_again": 0,
                   "samples_lost": pause_s / step_s * BATCH, "step_s": step_s}  # fmt: skip
    finally:
        run.close()


CONTENDERS: dict[str, Callable[[Course], Iterable[dict[str, Any]]]] = {
    "nfold": nfold,
    "nfold, servers": lambda course: nfold(course, "ps"),
    "torchrun": torchrun,
    "torchrun, in memory": lambda course: torchrun(course, in_memory=True),
    "torchft": torchft,
    "stop and go on": stop_and_copy,
}


def main() -> None:
    """Play all contenders one after the other, for each model and network, and write result.json."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--change", choices=CHANGES, default="3")
    options.add_argument("--millions", type=float, nargs="+", default=[1.0, 12.0, 60.0], help="of parameters")
    options.add_argument("--networks", nargs="+", default=[LOOPBACK, "100mbit"])
    options.add_argument("--only", nargs="+", choices=CONTENDERS, default=list(CONTENDERS))
    options.add_argument("--calm-steps", type=int, default=CALM_STEPS, help="between two events")
    options.add_argument("--checkpoint-every", type=int, default=EVERY, help="steps, of nfold")
    given = options.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # whoever ends it ends its hosts, too
    if "torchft" in given.only and not has_torchft(TORCHFT):
        print(f"torchft is left out: {TORCHFT} cannot import it. The README says how to install it.")
        given.only.remove("torchft")
    for network, millions, name in itertools.product(given.networks, given.millions, given.only):
        which = {"change": given.change, "network": network, "millions": millions, "contender": name}
        steps = (given.calm_steps, given.checkpoint_every)
        costs = costs_of(name, CHANGES[given.change], network, millions, *steps)
        found = [{**which, **stamp(), **row} for row in costs]
        print(*map(json.dumps, found), sep="\n", flush=True)
        kept = [each for each in known(__file__).get("rows", []) if not which.items() <= each.items()]
        write({"rows": [*kept, *found]}, __file__)


def costs_of(
    name: str, events: tuple[Event, ...], network: str, millions: float, calm_steps: int, checkpoint_every: int
) -> Iterator[dict[str, Any]]:
    """Let one contender play its events; yield what each cost, and last what did not come in time."""
    environment = {"MILLIONS": str(millions), "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as where, hosts_at(network, max(counts(events))) as hosts:
        try:
            yield from CONTENDERS[name](Course(events, calm_steps, checkpoint_every, hosts, Path(where), environment))
        except TimeoutError as late:
            yield {"event": str(late)}


if __name__ == "__main__":
    main()
