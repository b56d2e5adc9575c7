"""Changes of a planning question that a person could make: another strategy, a faster link, one node more or less."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from nfold.analysis.resimulating.asynchronous_playback import drift_back
from nfold.analysis.resimulating.calibrate import ALIKE
from nfold.analysis.resimulating.changed_questions import with_nodes
from nfold.analysis.resimulating.playback import play_back
from nfold.core.cluster import Channel, Node
from nfold.core.plan import Plan
from nfold.errors import PlanError
from nfold.planning.asynchronous.asynchronous_strategies import ASYNCHRONOUS
from nfold.planning.choosing import search
from nfold.planning.choosing.candidates import Candidate, estimate_proposal, simulate_proposal
from nfold.planning.choosing.portfolio import MANY_RANKS
from nfold.planning.choosing.proposals import Answers
from nfold.planning.choosing.strategies import SEARCHED, STRATEGIES, Strategy, named, objection_to
from nfold.planning.costs.memory_objection import memory_objection
from nfold.planning.inputs.facts import Facts as Question
from nfold.planning.operator_parts.splitting import split_facts


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """A run as it is: its plan, and a question that simulates like it."""

    plan: Plan
    question: Question
    step_s: float
    """Simulated, as it is."""
    framing: float = 1.0
    """Bytes on the wire for each byte of payload: links are named by what they are sold as."""
    ages: Mapping[int, int] = field(default_factory=dict)
    """Of an asynchronous run: gradients by staleness in updates, simulated."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Changed:
    """A run with something changed: all that it takes to make the change real and to play it."""

    plan: Plan
    question: Question
    step_s: float
    """Simulated."""
    ages: Mapping[int, int] = field(default_factory=dict)
    """Of an asynchronous plan: gradients by staleness in updates, simulated."""


def replayed(case: Case, question: Question, plan: Plan | None = None) -> Changed:
    """Return the run with another question, and its own placement unless another plan is given.

    Raises:
        ClusterError: two ranks that talk have no link between them, by the question.
    """
    return _played(plan or case.plan, question)


def _played(plan: Plan, question: Question) -> Changed:
    if plan.asynchrony is None:
        return Changed(plan=plan, question=question, step_s=play_back(plan, question).step_s)
    played = drift_back(plan, question)
    return Changed(plan=plan, question=question, step_s=played.step_s, ages=played.staleness)


def proposed(question: Question, strategy: Strategy, answers: Answers | None = None) -> Changed | None:
    """Return what training by a strategy would take; None where it would be refused: also for want of memory.

    Args:
        question: what to plan.
        strategy: to plan it by.
        answers: what was worked out for the same question before.
    """
    try:
        found = search.plan(question, strategy.name, among=(strategy,), answers=answers)
    except PlanError:
        return None
    is_simulated = found.world_size < MANY_RANKS and found.asynchrony is None
    if is_simulated:
        return Changed(plan=found, question=question, step_s=found.predicted.step_s)
    return _played(found, question)


def proposed_like(question: Question, strategy: Strategy, number: int) -> Changed | None:
    """Return one proposal of a strategy, or what training by it would take if it has not so many; None as there.

    Args:
        question: what to plan.
        strategy: that proposes.
        number: of the proposal.
    """
    if objection_to(strategy, question):
        return None
    proposals = list(strategy.propose(question))
    if number >= len(proposals):
        return proposed(question, strategy)
    proposal = proposals[number]
    if proposal.asynchrony is None:
        found: Candidate = simulate_proposal(question, strategy.name, proposal)
    else:
        found, _ = estimate_proposal(question, strategy.name, proposal)
    if memory_objection(split_facts(question, proposal.splits), proposal, found.predicted):
        return None
    plan = search.to_plan(question, found)
    return Changed(plan=plan, question=question, step_s=found.predicted.step_s, ages=found.ages)


def number_of_proposal(case: Case) -> int | None:
    """Return which proposal of its strategy the run's plan is, from 0; None where it is none of them any more.

    A placement that was searched for is made for its number of workers; another number has others.
    """
    if case.plan.strategy in SEARCHED:
        return None
    question = replace(case.question, chunks=case.plan.chunks)
    strategy = named(case.plan.strategy)
    if objection_to(strategy, question):
        return None
    proposals = [each.reductions for each in strategy.propose(question)]
    return proposals.index(case.plan.reductions) if case.plan.reductions in proposals else None


def with_workers(case: Case, workers: int) -> Question:
    """Return the question with the first workers alone, or with more of them on nodes like those in use.

    On one machine more workers share it; in a cluster of several nodes each new one brings a node, also when the run
    uses but one of them.
    """
    plan, question = case.plan, case.question
    working = plan.placement.working
    order = [*working, *(rank for rank in range(plan.workers) if rank not in working)]
    placed, servers = [plan.nodes[rank] for rank in order], plan.nodes[plan.workers : plan.world_size]
    cluster = question.cluster
    while len(placed) < workers:
        node = cluster.node(placed[len(placed) % plan.workers])
        if len(cluster.nodes) > 1:
            like = _typical(case)
            node = replace(like, name=f"{like.name}/{len(placed)}")
            cluster = replace(cluster, nodes=(*cluster.nodes, node))
        placed.append(node.name)
    return replace(
        question,
        cluster=cluster,
        nodes=(*placed[:workers], *servers),
        workers=workers,
        servers=min(plan.servers, workers),
        chunks=_chunks(plan, workers),
    )


def with_servers(case: Case, servers: int) -> Question:
    """Return the question with so many dedicated servers; new ones share the machine, or bring hosts of their own."""
    plan, cluster = case.plan, case.question.cluster
    placed = list(plan.nodes[: plan.world_size])[: plan.workers + servers]
    like = cluster.node(plan.nodes[plan.workers] if plan.servers else _typical(case).name)
    while len(placed) < plan.workers + servers:
        node = like
        if len(set(plan.nodes)) > 1:
            node = replace(like, name=f"{like.name}/{len(placed)}")
            cluster = replace(cluster, nodes=(*cluster.nodes, node))
        placed.append(node.name)
    return replace(case.question, cluster=cluster, nodes=tuple(placed), servers=servers, chunks=plan.chunks)


def without_node(case: Case, name: str) -> Question | None:
    """Return the question without the workers of a node; None where none would be left or a server lives there."""
    plan = case.plan
    placed = [node for node in plan.nodes[: plan.workers] if node != name]
    servers = plan.nodes[plan.workers : plan.world_size]
    if not placed or len(placed) == plan.workers or name in servers:
        return None
    return replace(
        case.question,
        nodes=(*placed, *servers),
        workers=len(placed),
        servers=min(plan.servers, len(placed)),
        chunks=_chunks(plan, len(placed)),
    )


def with_links(question: Question, names: Collection[str], bytes_per_s: float) -> Question:
    """Return the question with some nodes' links at least so fast in both directions, as links are bought."""

    def change(node: Node) -> Node:
        if node.name not in names:
            return node
        return replace(node, uplink=_at_least(node.uplink, bytes_per_s), downlink=_at_least(node.downlink, bytes_per_s))

    return with_nodes(question, change)


def with_processor_of_others(case: Case, name: str) -> Question | None:
    """Return the question with the processor of a typical other worker's node in a node; None where there is none.

    All that goes with a processor goes with it: its share of cores, how steadily it computes and how its quota is
    granted. Links and memory stay.
    """
    like = _like_others(case, name)
    if like is None:
        return None

    def change(node: Node) -> Node:
        if node.name != name:
            return node
        return replace(
            like,
            name=name,
            memory_bytes=node.memory_bytes,
            local=node.local,
            uplink=node.uplink,
            downlink=node.downlink,
        )

    return with_nodes(case.question, change)


def slow_node(case: Case) -> str:
    """Return the worker's node that is slower than a typical other one; empty where none is."""
    slowest = min(_nodes_of_workers(case), key=lambda node: node.speed)
    like = _like_others(case, slowest.name)
    return slowest.name if like is not None and like.speed > ALIKE * slowest.speed else ""


def with_larger_shares(case: Case, times: int) -> Question | None:
    """Return the question with so many times the share of a processor on each node; None where one has no limit.

    Seconds were measured under the quota, so a task of one thread is as much faster as its share is larger.
    """
    plan = case.plan
    ranks = (*plan.placement.working, *range(plan.workers, plan.world_size))
    used = [case.question.cluster.node(name) for name in {plan.nodes[rank] for rank in ranks}]
    if any(not node.quota_period_s or times * node.cores > 1 for node in used):
        return None

    def change(node: Node) -> Node:
        if node not in used:
            return node
        return replace(node, cores=times * node.cores, speed=times * node.speed)

    return with_nodes(case.question, change)


def others(case: Case) -> list[Strategy]:
    """Return the strategies that the run did not use and that wait for every gradient as it did.

    An asynchronous one does not take the same steps, so its step time does not compare.
    """
    left_out = {case.plan.strategy, "single", *ASYNCHRONOUS}
    return [strategy for strategy in STRATEGIES if strategy.name not in left_out]


def _like_others(case: Case, name: str) -> Node | None:
    """Return the typical one of the workers' other nodes, if there are others."""
    others = [node for node in _nodes_of_workers(case) if node.name != name]
    return _middle(others) if others else None


def _typical(case: Case) -> Node:
    return _middle(_nodes_of_workers(case))


def _nodes_of_workers(case: Case) -> list[Node]:
    """Return the nodes on which somebody computes."""
    working = dict.fromkeys(case.plan.nodes[rank] for rank in case.plan.placement.working)
    return [case.question.cluster.node(name) for name in working]


def _middle(nodes: Sequence[Node]) -> Node:
    """Return the node of median speed, of equally fast ones that of the median uplink."""
    return sorted(nodes, key=lambda node: (node.speed, _uplink_bytes_per_s(node), -nodes.index(node)))[len(nodes) // 2]


def _uplink_bytes_per_s(node: Node) -> float:
    return node.uplink.bandwidth_bytes_per_s if node.uplink is not None else 0.0


def _at_least(channel: Channel | None, bytes_per_s: float) -> Channel | None:
    if channel is None or channel.bandwidth_bytes_per_s >= bytes_per_s:
        return channel
    return replace(channel, bandwidth_bytes_per_s=bytes_per_s)


def _chunks(plan: Plan, workers: int) -> int:
    """As many as the plan has or a few more, so that every worker gets equally many."""
    return -(-plan.chunks // workers) * workers
