"""What would win time back: the run simulated again with something changed, never a guess.

Every gain is the simulated step as it is over the simulated step with the change, both from the calibrated question.
So where a simulation is off by a factor, measured and promised seconds are off by the same one, and the ratio stands.
A change is simulated only if it touches something that costs at least 2 % of the step: no other can win as much.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Literal

from nfold.analysis.measured.gradient_ages import altered
from nfold.analysis.reporting.accepted_advice import is_accepted
from nfold.analysis.resimulating.changed_questions import with_nodes, with_profiles, without_input
from nfold.analysis.resimulating.changes import (
    Case,
    Changed,
    number_of_proposal,
    others,
    proposed,
    proposed_like,
    replayed,
    slow_node,
    with_larger_shares,
    with_links,
    with_processor_of_others,
    with_servers,
    with_workers,
    without_node,
)
from nfold.analysis.resimulating.without_each_cause import without_latency
from nfold.analysis.rules.finding import Finding
from nfold.analysis.rules.pipelines import UNEVEN_STAGES
from nfold.core.plan import Plan
from nfold.core.report import Gain
from nfold.core.text.units import count, link_rate, size
from nfold.planning.choosing.proposals import Answers
from nfold.planning.choosing.strategies import PLACING, named
from nfold.planning.inputs.facts import Facts as Question

WORTH_SAYING = 1.02
"""Less than 2 % is within what two equal runs differ by."""
FASTER_LINK = 3
"""One step up in what is sold: 100 Mbit/s to 300, 1 Gbit/s to 2.5."""
MOST_TASKS = 60_000
"""A larger schedule takes seconds to simulate; then only the plan itself is changed, not its strategy or size."""
MORE_WORKERS = 4
LARGER_SHARE = 2
"""Times the share of a processor: what limits are raised by."""

ChangeKind = Literal[
    "strategy",
    "bound",
    "servers",
    "chunks",
    "bytes",
    "link",
    "latency",
    "node",
    "cores",
    "input",
    "memory",
    "workers",
    "fewer workers",
    "batch",
]
_Sized = Callable[[int], Changed | None]
"""A number of workers -> the run with so many."""
_TOUCHED: dict[str, tuple[ChangeKind, ...]] = {
    "link": ("strategy", "servers", "bytes", "link", "latency", "fewer workers", "batch"),
    "server": ("strategy", "servers", "bytes", "link", "latency", "batch"),
    "transport": ("strategy", "servers", "bytes", "cores", "batch"),
    "latency": ("strategy", "servers", "latency", "batch"),
    "bubble": ("chunks", "strategy", "batch"),
    "peer wait": ("node", "fewer workers"),
    "compute": ("workers", "cores"),
    "input": ("input", "workers"),
    "update": ("strategy", "cores", "batch"),
    "small batch": ("strategy", "batch"),
    "memory": ("memory",),
}
"""Which changes can win back what a cause costs."""
_TOUCHED_WITHOUT_STEPS: dict[str, tuple[ChangeKind, ...]] = {
    "compute": ("node", "fewer workers"),
    "peer wait": ("bound",),
}
"""Which can beside these where nobody waits for a common step: then no verdict says that a worker is slow."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TriedChange:
    """A change that was simulated, and of what kind it is."""

    kind: ChangeKind
    gain: Gain
    changed: Changed


@dataclass(frozen=True, kw_only=True, slots=True)
class PossibleGains:
    """What changes would win."""

    tried: tuple[TriedChange, ...]
    """Those that win enough, the largest first; those that save memory where that is what lacks, fast or slow."""
    useful_workers: int | None
    """Beyond which more of them gain little; None: more always help, or it was not looked for."""
    ages: Mapping[int, int] = field(default_factory=dict)
    """Of an asynchronous run: gradients by staleness in updates, as measured: what all that it wins is worth."""


def possible_gains(
    case: Case, found: tuple[Finding, ...], main: Finding, num_tasks: int, ages: Mapping[int, int]
) -> PossibleGains:
    """Simulate every change that can win something.

    Args:
        case: the run.
        found: what costs time in it.
        main: what holds it back most; says which link or node to change.
        num_tasks: that a simulation of it plays; of more than MOST_TASKS no other numbers of workers are tried.
        ages: of its gradients, as measured.
    """
    step_s = sum(finding.lost_s for finding in found if finding.kind != "shared cores")
    worth = {finding.kind for finding in found if finding.lost_s * WORTH_SAYING >= (WORTH_SAYING - 1) * step_s}
    worth |= {main.kind}  # memory costs no time
    touched = [_TOUCHED] if case.plan.asynchrony is None else [_TOUCHED, _TOUCHED_WITHOUT_STEPS]
    kinds = {kind for cause in worth for each in touched for kind in each.get(cause, ())}
    sized = cache(partial(_sized, case))
    of_its_size: Mapping[ChangeKind, _Rule] = {**_OF_ITS_SIZE, "workers": partial(_more_workers, sized)}
    rules = _OF_THE_PLAN if num_tasks > MOST_TASKS else {**_OF_THE_PLAN, **of_its_size}
    tried = [each for kind, rule in rules.items() if kind in kinds for each in rule(case, main)]
    enough = (each for each in tried if each.kind == "memory" or each.gain.speedup >= WORTH_SAYING)
    best = sorted(enough, key=lambda each: -each.gain.speedup)
    useful = useful_workers(case, sized) if num_tasks <= MOST_TASKS else None
    return PossibleGains(tried=tuple(best), useful_workers=useful, ages=ages)


def useful_workers(case: Case, sized: _Sized) -> int | None:
    """Return the number of workers beyond which more of them gain less than 2 %; None where more always help.

    Climbs from where the run is: up while one more helps, and down while one less costs nothing.

    Args:
        case: the run.
        sized: what it is with so many workers.
    """

    if case.plan.chunk_shares:
        return None  # what others would train on, nobody has placed

    def step_s(workers: int) -> float:
        changed = sized(workers)
        return changed.step_s if changed else float("inf")

    here = case.plan.workers
    most = min(here + MORE_WORKERS, case.plan.batch_size)
    while here < most and step_s(here + 1) * WORTH_SAYING <= step_s(here):
        here += 1
    if here > case.plan.workers:
        return here if here < most else None
    while here > 1 and step_s(here - 1) <= step_s(here) * WORTH_SAYING:
        here -= 1
    return here


def _sized(case: Case, workers: int) -> Changed | None:
    """Return the run with another number of workers, by the same kind of plan."""
    if workers == case.plan.workers:
        return Changed(plan=case.plan, question=case.question, step_s=case.step_s)
    question = with_workers(case, workers)
    if workers == 1 and not question.servers:
        return proposed(question, named("single"))
    if case.plan.strategy == "single":
        return proposed(question, named("ring"))
    return _by_the_same(case, question)


def _by_the_same(case: Case, question: Question) -> Changed | None:
    """Return the answer to another question by the same kind of plan."""
    strategy, number = named(case.plan.strategy), number_of_proposal(case)
    return proposed(question, strategy) if number is None else proposed_like(question, strategy, number)


def _halved_bytes(case: Case, main: Finding) -> Iterator[TriedChange]:
    reductions = tuple(replace(each, item_bytes=max(1, each.item_bytes // 2)) for each in case.plan.reductions)
    halved = replayed(case, case.question, replace(case.plan, reductions=reductions))
    yield _tried(case, "bytes", "halving the bytes (bf16)", halved)


def _faster_links(case: Case, main: Finding) -> Iterator[TriedChange]:
    """One step up for the link that holds the run back; where others would hold it back next, for these too."""
    if not main.node or not main.side:
        return
    node = case.question.cluster.node(main.node)
    channel = node.uplink if main.side == "uplink" else node.downlink
    if channel is None:
        return
    speed = FASTER_LINK * channel.bandwidth_bytes_per_s
    name, used = link_rate(speed * case.framing), set(case.plan.nodes[: case.plan.world_size])
    one = replayed(case, with_links(case.question, {main.node}, speed))
    every = replayed(case, with_links(case.question, used, speed))
    yield _tried(case, "link", f"a {name} link for {main.node}", one)
    if every.step_s * WORTH_SAYING <= one.step_s:
        yield _tried(case, "link", f"{name} links for all nodes", every)


def _no_latency(case: Case, main: Finding) -> Iterator[TriedChange]:
    yield _tried(case, "latency", "no latency", replayed(case, with_nodes(case.question, without_latency)))


def _evened(case: Case, main: Finding) -> Iterator[TriedChange]:
    """Give a slow node the processor of the other workers' nodes."""
    name = _slow_node(case, main)
    even = with_processor_of_others(case, name) if name else None
    if even is not None:
        yield _tried(case, "node", f"making {name} as fast as the others", replayed(case, even))


def _slow_node(case: Case, main: Finding) -> str:
    """Return the node whose processor holds others back, or, where none waits for it, lags behind; else nothing."""
    if main.kind == "peer wait":
        return main.node if main.sub_cause != UNEVEN_STAGES else ""
    return slow_node(case) if case.plan.asynchrony is not None else ""


def _larger_shares(case: Case, main: Finding) -> Iterator[TriedChange]:
    larger = with_larger_shares(case, LARGER_SHARE)
    if larger is not None:
        yield _tried(case, "cores", "twice the share of a processor for every node", replayed(case, larger))


def _ready_input(case: Case, main: Finding) -> Iterator[TriedChange]:
    ready = replayed(case, with_profiles(case.question, without_input))
    yield _tried(case, "input", "input that is ready in time", ready)


def _more_chunks(case: Case, main: Finding) -> Iterator[TriedChange]:
    """Cut every chunk in two and leave both where it is: only a pipeline is kept fuller by that."""
    plan = case.plan
    count, owners = 2 * plan.chunks, plan.placement.owners
    if main.kind == "bubble" and 2 * count <= plan.batch_size:
        halved = {name: tuple(rank for rank in ranks for _ in range(2)) for name, ranks in owners.items()}
        placement = replace(plan.placement, num_chunks=count, owners=halved)
        finer = replace(plan, chunks=count, placement=placement)
        if is_accepted(_command(finer), case.question):
            yield _tried(case, "chunks", f"`--chunks {count}`", replayed(case, case.question, finer), _command(finer))


def _saving_memory(case: Case, main: Finding) -> Iterator[TriedChange]:
    """Where memory lacks: smaller chunks, of which a backward pass keeps less, or a part of the model on each rank."""
    plan = case.plan
    count = 2 * plan.chunks
    if main.kind != "memory":
        return
    if count <= plan.batch_size and (finer := _by_the_same(case, replace(case.question, chunks=count))):
        yield from _saved(case, main, f"`--chunks {count}`", finer)
    whole = replace(case.question, servers=0, nodes=plan.nodes[: plan.workers], chunks=plan.chunks)
    if not plan.placement.is_cut and plan.workers > 1 and (cut := proposed(whole, named("pipeline"))):
        yield from _saved(case, main, "`--strategy pipeline`", cut)


def _saved(case: Case, main: Finding, what: str, changed: Changed) -> Iterator[TriedChange]:
    now, then = (_peak_bytes(each, main.node) for each in (case.plan, changed.plan))
    if now >= WORTH_SAYING * then:
        saved = f"{what} ({size(then)} instead of {size(now)} on {main.node}, predicted)"
        yield _tried(case, "memory", saved, changed, _command(changed.plan))


def _peak_bytes(plan: Plan, node: str) -> int:
    """Return what all ranks of a node should take together."""
    return sum(peak for peak, at in zip(plan.predicted.peak_memory_bytes, plan.nodes, strict=False) if at == node)


def _twice_the_batch(case: Case, main: Finding) -> Iterator[TriedChange]:
    size = 2 * case.plan.batch_size
    doubled = replayed(case, replace(case.question, batch_size=size), replace(case.plan, batch_size=size))
    tried = _tried(case, "batch", "twice the batch size (samples/s)", doubled)
    yield replace(tried, gain=replace(tried.gain, speedup=2 * tried.gain.speedup))


def _strategies(case: Case, main: Finding) -> Iterator[TriedChange]:
    plan = case.plan
    question = replace(case.question, servers=0, nodes=plan.nodes[: plan.workers], chunks=plan.chunks)
    answers = Answers(question)
    for strategy in others(case):
        changed = proposed(question, strategy, answers) if plan.workers > 1 else None
        if changed is not None:
            yield _tried(case, "strategy", f"`--strategy {strategy.name}`", changed, _command(changed.plan))
    if plan.asynchrony is not None and plan.servers:
        same = proposed(with_servers(case, plan.servers), named("ps"))
        if same is not None:
            yield _tried(case, "strategy", f"`--strategy ps --servers {plan.servers}`", same, _command(same.plan))


def _without_bound(case: Case, main: Finding) -> Iterator[TriedChange]:
    """Let nobody wait for the slowest: what that saves is paid for with older gradients, so both are to be raced."""
    plan = case.plan
    if plan.asynchrony is None or plan.asynchrony.bound is None:
        return
    free = replace(plan, strategy="ps-async", asynchrony=replace(plan.asynchrony, bound=None))
    servers = f" --servers {plan.servers}" if plan.servers else ""
    raced = f"nfold compare {{file}} -n {plan.workers} --strategies {plan.strategy},{free.strategy}{servers}"
    yield _tried(case, "bound", f"`--strategy {free.strategy}`", replayed(case, case.question, free), raced)


def _servers(case: Case, main: Finding) -> Iterator[TriedChange]:
    plan = case.plan
    numbers = {0, 2 * plan.servers, plan.workers} - {plan.servers} if plan.servers else set()
    if plan.asynchrony is not None and not plan.servers and len(set(plan.nodes)) > 1:
        numbers = {plan.workers}  # on hosts of their own: a link that serves carries its own worker's bytes, too
    for servers in sorted(number for number in numbers if number <= plan.workers):
        changed = proposed(with_servers(case, servers), named(plan.strategy))
        if changed is not None:
            hosts = servers - plan.servers if len(set(plan.nodes)) > 1 else 0
            extra = f" ({count(hosts, 'host')} more)" if hosts > 0 else ""
            command = _command(changed.plan) if hosts <= 0 else ""  # a host must be there before a flag can use it
            yield _tried(case, "servers", f"`--servers {servers}`{extra}", changed, command)


def _more_workers(sized: _Sized, case: Case, main: Finding) -> Iterator[TriedChange]:
    plan = case.plan
    more = sized(plan.workers + 1) if plan.workers < plan.batch_size else None
    if more is not None:
        several = len(case.question.cluster.nodes) > 1
        what = "one more node like these" if several else f"`-n {plan.workers + 1}` on the same machine"
        yield _tried(case, "workers", what, more)


def _fewer_workers(case: Case, main: Finding) -> Iterator[TriedChange]:
    for name in dict.fromkeys((main.node, _slow_node(case, main))):
        without = without_node(case, name) if name else None
        if without is not None:
            alone = without.workers == 1 and not without.servers
            fewer = proposed(without, named("single" if alone else case.plan.strategy))
            if fewer is not None:
                yield _tried(case, "fewer workers", f"leaving {name} out", fewer)


def _command(plan: Plan) -> str:
    """Return what to type for a run by such a plan; where data live on nodes, these are its ranks and chunks."""
    if plan.chunk_shares:
        return f"nfold train {{file}} --strategy {plan.strategy}"
    rules = plan.asynchrony
    bound = f" --staleness {rules.bound}" if rules is not None and rules.bound is not None else ""
    aware = " --staleness-aware" if rules is not None and rules.staleness_aware else ""
    servers = f" --servers {plan.servers}" if plan.servers else ""
    flags = f"--strategy {plan.strategy}{bound}{aware}{servers} --chunks {plan.chunks}"
    return f"nfold train {{file}} -n {plan.workers} {flags}"


_Rule = Callable[[Case, Finding], Iterator[TriedChange]]
_OF_THE_PLAN: Mapping[ChangeKind, _Rule] = {
    "chunks": _more_chunks,
    "bytes": _halved_bytes,
    "link": _faster_links,
    "latency": _no_latency,
    "node": _evened,
    "bound": _without_bound,
    "cores": _larger_shares,
    "input": _ready_input,
    "batch": _twice_the_batch,
}
_OF_ITS_SIZE: Mapping[ChangeKind, _Rule] = {
    "strategy": _strategies,
    "servers": _servers,
    "memory": _saving_memory,
    "fewer workers": _fewer_workers,
}


def _tried(case: Case, kind: ChangeKind, what: str, changed: Changed, command: str = "") -> TriedChange:
    speedup = case.step_s / changed.step_s if changed.step_s > 0 else 1.0
    change = f"{what}{altered(case.ages, changed.ages)}"
    is_rough = kind == "strategy" and changed.plan.strategy in PLACING
    gain = Gain(change=change, speedup=speedup, command=command, is_rough=is_rough)
    return TriedChange(kind=kind, gain=gain, changed=changed)
