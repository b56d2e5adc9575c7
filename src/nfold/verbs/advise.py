"""advise: measures a program and some nodes, and says how many of them are worth having."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any

from nfold.core.findings.node_advice import Advice
from nfold.core.options.run_options import WATCHING, RunOptions
from nfold.core.options.whole import whole
from nfold.core.text.durations import duration_s
from nfold.core.text.units import count
from nfold.errors import InternalError, PlanError
from nfold.planning.choosing.node_counts import Wanted, advise_sizes, sizes_between
from nfold.runtime.control.commands import Measured
from nfold.verbs.options.keywords import takes_options
from nfold.verbs.options.option_checks import Options, Wishes
from nfold.verbs.options.target import read_target
from nfold.verbs.running.observer import NullObserver, Observer
from nfold.verbs.running.run_job import Job
from nfold.verbs.train import Source, find_source

SIZES = "1:16"
PROBED = 2
"""Hosts that a manager is asked for: the fewest that have a link to measure."""
MOST_NODES = 256
"""A plan for 128 takes ten seconds, one for 256 forty."""
NOT_ASKED = (
    "workers",
    "strategy",
    "servers",
    "staleness",
    "staleness_aware",
    "place",
    "checkpoint_every",
    "keep",
    "out",
    "debug",
    "first_step_within",
    "fault",
    "stop_after",
    "measure",
    "default_chunks",
    *WATCHING,
)
"""Options of runs that it does not take: it plans for one worker on each node, and trains nothing."""
_SIZES = re.compile(r"\s*(?:(\d+)\s*:)?\s*(\d+)\s*")


@dataclass(frozen=True, kw_only=True, slots=True)
class AdviseOptions(RunOptions):
    """Keywords of `advise`."""

    nodes: str | int = SIZES  # from how many to how many
    probe: int | None = None
    price_per_hour: float | None = None
    within: float | str | None = None
    observer: Observer | None = None


@takes_options(AdviseOptions, without=NOT_ASKED)
def advise(program: Source, asked: AdviseOptions, wishes: Wishes) -> Advice:
    """Say how long a program would train on other numbers of nodes, what that costs, and where more stop helping.

    Measures the program, the nodes and their links, and trains nothing. Nodes are taken in their order, a worker on
    each; beyond those that were measured they are taken to come again.

    Args:
        program: as for `train`.
        nodes: `1:64`, or the largest number alone. All up to 8 are looked at, then 12, 16, 24, 32 ..
        probe: how many are measured; None: all of an emulated cluster or a hosts file, and two that others bring.
        price_per_hour: of each node; None: as the cluster file says.
        within: seconds, or `3h`, in which the run should be done.
        observer: is shown what happens.
        on, emulate, steps ..: other fields of RunOptions (`core/options/run_options.py`).

    Raises:
        NfoldError: there are no nodes to measure, or as `plan` does.
    """
    least, most = read_sizes(asked.nodes)
    price = _price(asked.price_per_hour)
    within_s = None if asked.within is None else duration_s(asked.within, "--within")
    others = {name: value for name, value in wishes.items() if name != "nodes"}
    options = probing(others, asked.probe, most)
    observer, sizes = asked.observer or NullObserver(), sizes_between(least, most)
    observer.noted(f"measuring the program, {count(options.workers, 'node')} and their links ..")
    measured = _measure(program, options, observer, most)
    observer.noted(f"planning for {', '.join(map(str, sizes))} ..")
    wanted = Wanted(
        sizes=sizes,
        total_steps=measured.run_steps.total_steps,
        price_per_hour=price,
        within_s=within_s,
    )
    return advise_sizes(measured.question, wanted)


def _measure(program: Source, options: Options, observer: Observer, most: int) -> Measured:
    job = Job(find_source(program), options, observer, folder=None, measures_for=(most,))
    for _ in job.play():
        raise InternalError("advice played a step")
    if job.outcome.measured is None:
        raise InternalError("measuring ended without measurements")
    return job.outcome.measured


def read_sizes(text: str | int) -> tuple[int, int]:
    """Read the first and last number of nodes to look at: `1:64`, or `64` for 1 to 64.

    Raises:
        PlanError: it is something else, or more than can be looked at.
    """
    found = _SIZES.fullmatch(str(text)) if isinstance(text, str | int) else None
    least, most = (int(found[1] or 1), int(found[2])) if found else (0, 0)
    if not 1 <= least <= most <= MOST_NODES:
        raise PlanError(
            f"--nodes {text}: it must be the fewest and the most nodes to look at, as in 1:64, at most {MOST_NODES}"
        )
    return least, most


def probing(wishes: Mapping[str, Any], probe: int | None, most: int) -> Options:
    """Return the options of the job that measures: as many nodes as there are, but no more than are asked about.

    Args:
        wishes: options that were given, but for the number of nodes.
        probe: how many to measure; None: nobody said.
        most: that are asked about.

    Raises:
        PlanError: there is nothing to measure, or not so many nodes.
    """
    target = read_target(wishes.get("on"), wishes.get("listen"))
    if target is None and wishes.get("emulate") is None:
        raise PlanError(
            "advise measures nodes and the links between them, and none are given. Add --on KIND[:WHERE], "
            "--listen HOST:PORT or --emulate cluster.toml."
        )
    if probe is not None and (whole(probe) is None or probe < 1):
        raise PlanError(f"--probe {probe!r}: it must be a whole number of nodes, at least 1")
    there = _num_there(wishes)
    if probe is not None and there is not None and probe > there:
        raise PlanError(f"--probe {probe}: more than the {count(there, 'node')} that can be measured. Ask for fewer.")
    number = min(most, probe or there or PROBED)
    hosts = {"nodes": number} if target is not None else {}
    return Options(**{**wishes, **hosts, "workers": number})


def _num_there(wishes: Mapping[str, Any]) -> int | None:
    """Return how many nodes an emulated cluster or a hosts file has; None: a manager finds some when it is asked."""
    options = Options(**{**wishes, "workers": 1})
    if options.emulated is not None:
        return len(options.emulated.nodes)
    return len(options.listed_hosts) or None


def _price(price_per_hour: float | None) -> float | None:
    """Return a price that makes sense."""
    is_number = isinstance(price_per_hour, int | float) and isfinite(price_per_hour)
    if price_per_hour is not None and not (is_number and price_per_hour > 0):
        raise PlanError(f"--price-per-hour {price_per_hour}: it must be a number of more than 0")
    return price_per_hour
