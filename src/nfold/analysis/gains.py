"""What would win time back: the run simulated again with something changed, never a guess.

Every gain is the simulated step as it is over the simulated step with the change, both from the calibrated question.
So where a simulation is off by a factor, measured and promised seconds are off by the same one, and the ratio stands.
A change is simulated only if it touches something that costs at least 2 % of the step: no other can win as much.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from nfold.analysis.changes import (
    Case,
    number_of_proposal,
    others,
    proposed_s,
    with_link,
    with_nodes,
    with_servers,
    with_workers,
    without_node,
)
from nfold.analysis.finding import Finding
from nfold.analysis.pipelines import UNEVEN_STAGES
from nfold.analysis.playback import play_back
from nfold.analysis.units import count, link_rate
from nfold.core.cluster import Channel, Node
from nfold.core.report import Gain
from nfold.planning.facts import Facts as Question
from nfold.planning.strategies import named

WORTH_SAYING = 1.02
"""Less than 2 % is within what two equal runs differ by."""
FASTER_LINK = 3
"""One step up in what is sold: 100 Mbit/s to 300, 1 Gbit/s to 2.5."""
MOST_TASKS = 60_000
"""A larger schedule takes seconds to simulate; then only the plan itself is changed, not its strategy or size."""
MORE_WORKERS = 4

ChangeKind = Literal[
    "strategy", "servers", "chunks", "bytes", "link", "latency", "node", "input", "workers", "fewer workers", "batch"
]
_TOUCHED: dict[str, tuple[ChangeKind, ...]] = {
    "link": ("strategy", "servers", "bytes", "link", "latency", "fewer workers", "batch"),
    "server": ("strategy", "servers", "bytes", "link", "latency", "batch"),
    "transport": ("strategy", "servers", "bytes", "batch"),
    "latency": ("strategy", "servers", "latency", "batch"),
    "bubble": ("chunks", "strategy", "batch"),
    "peer wait": ("node", "fewer workers"),
    "compute": ("workers",),
    "input": ("input", "workers"),
    "update": ("strategy", "batch"),
    "small batch": ("strategy", "batch"),
}
"""Which changes can win back what a cause costs."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Tried:
    """A change that was simulated, and of what kind it is."""

    kind: ChangeKind
    gain: Gain


@dataclass(frozen=True, kw_only=True, slots=True)
class Outlook:
    """What changes would win."""

    tried: tuple[Tried, ...]
    """Those that win enough, the largest first."""
    useful_workers: int | None


def outlook(case: Case, found: tuple[Finding, ...], main: Finding, num_tasks: int) -> Outlook:
    """Simulate every change that can win something.

    Args:
        case: the run.
        found: what costs time in it.
        main: what holds it back most; says which link or node to change.
        num_tasks: of its schedule.
    """
    step_s = sum(finding.lost_s for finding in found if finding.kind != "shared cores")
    worth = {finding.kind for finding in found if finding.lost_s * WORTH_SAYING >= (WORTH_SAYING - 1) * step_s}
    kinds = {kind for cause in worth for kind in _TOUCHED.get(cause, ())}
    rules = _OF_THE_PLAN if num_tasks > MOST_TASKS else {**_OF_THE_PLAN, **_OF_ITS_SIZE}
    tried = [Tried(kind=kind, gain=gain) for kind, rule in rules.items() if kind in kinds for gain in rule(case, main)]
    best = sorted((each for each in tried if each.gain.speedup >= WORTH_SAYING), key=lambda each: -each.gain.speedup)
    return Outlook(tried=tuple(best), useful_workers=useful_workers(case) if num_tasks <= MOST_TASKS else None)


def useful_workers(case: Case) -> int | None:
    """Return the number of workers beyond which more of them gain less than 2 %; None where more always help.

    Climbs from where the run is: up while one more helps, and down while one less costs nothing.
    """
    steps: dict[int, float] = {}

    def step_s(workers: int) -> float:
        if workers not in steps:
            steps[workers] = _sized_s(case, workers) or float("inf")
        return steps[workers]

    here = case.plan.workers
    most = min(here + MORE_WORKERS, case.plan.batch_size)
    while here < most and step_s(here + 1) * WORTH_SAYING <= step_s(here):
        here += 1
    if here > case.plan.workers:
        return here if here < most else None
    while here > 1 and step_s(here - 1) <= step_s(here) * WORTH_SAYING:
        here -= 1
    return here


def _sized_s(case: Case, workers: int) -> float | None:
    """Simulated step with another number of workers, by the same kind of plan."""
    if workers == case.plan.workers:
        return case.step_s
    question = with_workers(case, workers)
    if workers == 1 and not question.servers:
        return proposed_s(question, named("single"))
    if case.plan.strategy == "single":
        return proposed_s(question, named("ring"))
    return proposed_s(question, named(case.plan.strategy), number_of_proposal(case))


def _halved_bytes(case: Case, main: Finding) -> Iterator[Gain]:
    reductions = tuple(replace(each, item_bytes=max(1, each.item_bytes // 2)) for each in case.plan.reductions)
    plan = replace(case.plan, reductions=reductions)
    yield _gain(replace(case, plan=plan), "halving the bytes (bf16)", case.question)


def _faster_link(case: Case, main: Finding) -> Iterator[Gain]:
    if not main.node or not main.side:
        return
    node = case.question.cluster.node(main.node)
    channel = node.uplink if main.side == "uplink" else node.downlink
    if channel is not None:
        speed = FASTER_LINK * channel.bandwidth_bytes_per_s
        name = f"a {link_rate(speed * case.framing)} link for {main.node}"
        yield _gain(case, name, with_link(case.question, main.node, speed))


def _no_latency(case: Case, main: Finding) -> Iterator[Gain]:
    yield _gain(case, "no latency", with_nodes(case.question, _without_latency))


def _evened(case: Case, main: Finding) -> Iterator[Gain]:
    """Give a slow node the mean speed of the other workers' nodes."""
    cluster, placed = case.question.cluster, dict.fromkeys(case.plan.nodes[: case.plan.workers])
    speeds = [cluster.node(name).speed for name in placed if name != main.node]
    if main.kind == "peer wait" and main.sub_cause != UNEVEN_STAGES and speeds:
        mean = sum(speeds) / len(speeds)
        even = with_nodes(case.question, lambda node: replace(node, speed=mean) if node.name == main.node else node)
        yield _gain(case, f"making {main.node} as fast as the others", even)


def _ready_input(case: Case, main: Finding) -> Iterator[Gain]:
    profiles = {threads: replace(each, load_s_per_sample=0.0) for threads, each in case.question.profiles.items()}
    yield _gain(case, "input that is ready in time", replace(case.question, profiles=profiles))


def _more_chunks(case: Case, main: Finding) -> Iterator[Gain]:
    """Cut every chunk in two and leave both where it is: only a pipeline is kept fuller by that."""
    plan = case.plan
    count, owners = 2 * plan.chunks, plan.placement.owners
    if main.kind == "bubble" and 2 * count <= plan.batch_size:
        halved = {name: tuple(rank for rank in ranks for _ in range(2)) for name, ranks in owners.items()}
        placement = replace(plan.placement, num_chunks=count, owners=halved)
        finer = replace(case, plan=replace(plan, chunks=count, placement=placement))
        gain = _gain(finer, f"`--chunks {count}`", case.question)
        command = f"nfold train {{file}} -n {plan.workers} --strategy {plan.strategy} --chunks {count}"
        yield replace(gain, command=command)


def _twice_the_batch(case: Case, main: Finding) -> Iterator[Gain]:
    doubled = _gain(
        case, "twice the batch size (samples/s)", replace(case.question, batch_size=2 * case.plan.batch_size)
    )
    yield replace(doubled, speedup=2 * doubled.speedup)


def _strategies(case: Case, main: Finding) -> Iterator[Gain]:
    plan = case.plan
    question = replace(case.question, servers=0, nodes=plan.nodes[: plan.workers], chunks=plan.chunks)
    for strategy in others(case):
        step_s = proposed_s(question, strategy) if plan.workers > 1 else None
        if step_s:
            command = f"nfold train {{file}} -n {plan.workers} --strategy {strategy.name} --chunks {plan.chunks}"
            yield Gain(change=f"`--strategy {strategy.name}`", speedup=case.step_s / step_s, command=command)


def _servers(case: Case, main: Finding) -> Iterator[Gain]:
    plan = case.plan
    numbers = {0, 2 * plan.servers, plan.workers} - {plan.servers} if plan.servers else set()
    for servers in sorted(number for number in numbers if number <= plan.workers):
        step_s = proposed_s(with_servers(case, servers), named(plan.strategy))
        if step_s:
            hosts = servers - plan.servers if len(set(plan.nodes)) > 1 else 0
            extra = f" ({count(hosts, 'host')} more)" if hosts > 0 else ""
            typed = f"nfold train {{file}} -n {plan.workers} --strategy {plan.strategy} --servers {servers}"
            command = typed if hosts <= 0 else ""  # a host must be there before a flag can use it
            yield Gain(change=f"`--servers {servers}`{extra}", speedup=case.step_s / step_s, command=command)


def _more_workers(case: Case, main: Finding) -> Iterator[Gain]:
    plan = case.plan
    more = _sized_s(case, plan.workers + 1) if plan.workers < plan.batch_size else None
    if more:
        several = len(set(plan.nodes)) > 1
        what = "one more node like these" if several else f"`-n {plan.workers + 1}` on the same machine"
        yield Gain(change=what, speedup=case.step_s / more)


def _fewer_workers(case: Case, main: Finding) -> Iterator[Gain]:
    plan = case.plan
    without = without_node(case, main.node) if main.node else None
    if without is not None:
        alone = without.workers == 1 and not without.servers
        step_s = proposed_s(without, named("single" if alone else plan.strategy))
        if step_s:
            yield Gain(change=f"leaving {main.node} out", speedup=case.step_s / step_s)


_Rule = Callable[[Case, Finding], Iterator[Gain]]
_OF_THE_PLAN: Mapping[ChangeKind, _Rule] = {
    "chunks": _more_chunks,
    "bytes": _halved_bytes,
    "link": _faster_link,
    "latency": _no_latency,
    "node": _evened,
    "input": _ready_input,
    "batch": _twice_the_batch,
}
_OF_ITS_SIZE: Mapping[ChangeKind, _Rule] = {
    "strategy": _strategies,
    "servers": _servers,
    "workers": _more_workers,
    "fewer workers": _fewer_workers,
}


def _gain(case: Case, change: str, question: Question) -> Gain:
    """Simulate the run's own placement with another question."""
    step_s = play_back(case.plan, question).step_s
    return Gain(change=change, speedup=case.step_s / step_s if step_s > 0 else 1.0)


def _without_latency(node: Node) -> Node:
    return replace(
        node,
        local=_instant(node.local),
        uplink=node.uplink and _instant(node.uplink),
        downlink=node.downlink and _instant(node.downlink),
    )


def _instant(channel: Channel) -> Channel:
    return replace(channel, latency_s=0.0, cpu_s_per_message=0.0)
