"""Plans for the members of a next generation and compiles what they will do, while others train. Pure, and slow.

Newcomers are let in where a step gets no longer by them than predictions are worth; else the others stay without them.
Who names a strategy has all hosts take part in it, as at the start.
"""

from dataclasses import replace
from math import inf

from nfold.core.cluster import Cluster
from nfold.core.job import JobSettings, Known
from nfold.core.plan import Plan
from nfold.errors import PlanError
from nfold.planning.choosing.node_counts import refusal_of
from nfold.planning.choosing.strategies import AUTO
from nfold.runtime.control import commands as cmd
from nfold.runtime.control import events as ev
from nfold.runtime.coordinator.job_planning import JobPlanning, Ready, build_orders
from nfold.runtime.coordinator.replanning import LEAST_GAIN, plan_of


def plan_aside(asked: cmd.PlanAside) -> ev.PlannedAside:
    """Return the plan for those who stay with the newcomers, or without them where that is better or all that can be.

    An error of planning itself is told as a refusal.
    """
    try:
        return _planned(asked)
    except Exception as error:  # in a thread of its own: nobody else would hear of it
        return replace(_nothing(asked), refusal=_told(error))


def settings_for(settings: JobSettings, hosts: tuple[str, ...], count: int, cluster: Cluster) -> JobSettings:
    """Return the settings of a job of the first ranks, with as many servers as the job has, if that is half.

    Args:
        settings: of the job.
        hosts: of the ranks; empty: all share one.
        count: of ranks.
        cluster: their nodes.
    """
    servers = min(settings.servers, count // 2)
    return replace(
        settings,
        workers=count - servers,
        servers=servers,
        cluster=cluster if settings.cluster is not None else None,
        nodes=hosts[:count],
    )


def plan_for(settings: JobSettings, known: Known, ready: Ready) -> tuple[Plan, tuple[str, ...]]:
    """Return the plan by the strategy that was asked for, or by any that can be had with so many; and what to tell.

    Args:
        settings: of the ranks that are planned for.
        known: with the plan of those before them, if that may be asynchronous: then no other strategy follows.
        ready: what ranks told of the program.

    Raises:
        PlanError: there is none.
    """
    now = replace(known, plan=None)
    try:
        return JobPlanning(settings).plan(now, ready), ()
    except PlanError as error:
        if settings.strategy == AUTO or (known.plan is not None and known.plan.asynchrony is not None):
            raise
        told = (
            f"note: {settings.strategy} cannot be had with the {settings.world_size} that stay, so any other may "
            f"follow: {error}"
        )
        return JobPlanning(replace(settings, strategy=AUTO)).plan(now, ready), (told,)


def with_nodes(known: Known, hosts: tuple[str, ...]) -> Known:
    """Let the cluster have the nodes of some hosts and no others, in their order; without hosts it stays."""
    if not hosts:
        return known
    nodes = tuple(known.cluster.node(name) for name in dict.fromkeys(hosts))
    return replace(known, cluster=replace(known.cluster, nodes=nodes))


def _planned(asked: cmd.PlanAside) -> ev.PlannedAside:
    if asked.are_stranded:
        return _with_newcomers(asked)
    grown, refusal = _grown(asked)
    if grown is not None and (longer := _longer(asked, grown)) > 0:
        return replace(_without(asked), longer=longer)
    if grown is None:
        return replace(_without(asked), refusal=refusal)
    return _followed(asked, grown, asked.hosts, (*asked.stayers, *asked.newcomers), ())


def _with_newcomers(asked: cmd.PlanAside) -> ev.PlannedAside:
    """What follows where there is no plan without newcomers: any that there is with them."""
    members = (*asked.stayers, *asked.newcomers)
    settings = settings_for(asked.settings, asked.hosts, len(members), asked.known.cluster)
    try:
        chosen, notes = plan_for(settings, asked.known, asked.ready)
    except PlanError as error:
        return replace(_nothing(asked), refusal=refusal_of(error))
    return _followed(asked, chosen, asked.hosts, members, notes)


def _grown(asked: cmd.PlanAside) -> tuple[Plan | None, str]:
    """The plan with newcomers, or why there is none."""
    count = len(asked.stayers) + len(asked.newcomers)
    if not asked.newcomers:
        return None, ""
    settings = settings_for(asked.settings, asked.hosts, count, asked.known.cluster)
    try:
        return JobPlanning(settings).plan(replace(asked.known, plan=None), asked.ready), ""
    except PlanError as error:
        return None, refusal_of(error)


def _longer(asked: cmd.PlanAside, grown: Plan) -> float:
    """By which share a step is longer with newcomers than without them; 0: it is not, or they are the only ones."""
    if not asked.stayers or not asked.hosts or asked.settings.strategy != AUTO:
        return 0.0
    without_s = _without_s(asked)
    if grown.world_size <= len(asked.stayers):
        return _longer_with_all(asked, without_s)
    longer = grown.predicted.step_s / without_s - 1
    return longer if longer > LEAST_GAIN else 0.0


def _longer_with_all(asked: cmd.PlanAside, without_s: float) -> float:
    """By which share a step were longer if all took part by the strategy of now; infinite: they cannot."""
    named = replace(asked.settings, strategy=plan_of(asked.known).strategy)
    all_of_them, _ = _grown(replace(asked, settings=named))
    if all_of_them is None or all_of_them.predicted.step_s <= without_s:
        return inf
    return all_of_them.predicted.step_s / without_s - 1


def _without_s(asked: cmd.PlanAside) -> float:
    """Seconds of a step without newcomers."""
    chosen, alone = plan_of(asked.known), _alone(asked)
    if asked.stayers == asked.ranks and chosen.asynchrony is not None:
        return chosen.predicted.step_s
    if asked.stayers == asked.ranks:
        settings = settings_for(asked.settings, _hosts_of_stayers(asked), len(asked.stayers), alone.cluster)
        return JobPlanning(settings).of(chosen).predicted_s(alone, chosen, asked.ready)
    return _plan_alone(asked)[0].predicted.step_s


def _without(asked: cmd.PlanAside) -> ev.PlannedAside:
    """What follows without newcomers: nothing, where nobody leaves."""
    if asked.stayers == asked.ranks or not asked.stayers:
        return _nothing(asked)
    chosen, notes = _plan_alone(asked)
    return _followed(asked, chosen, _hosts_of_stayers(asked), asked.stayers, notes)


def _plan_alone(asked: cmd.PlanAside) -> tuple[Plan, tuple[str, ...]]:
    alone = _alone(asked)
    settings = settings_for(asked.settings, _hosts_of_stayers(asked), len(asked.stayers), alone.cluster)
    return plan_for(settings, alone, asked.ready)


def _followed(
    asked: cmd.PlanAside, chosen: Plan, hosts: tuple[str, ...], members: tuple[int, ...], notes: tuple[str, ...]
) -> ev.PlannedAside:
    known = replace(with_nodes(asked.known, hosts), plan=chosen)
    total_steps = JobPlanning(asked.settings).run_steps(asked.ready).total_steps
    orders = build_orders(known, chosen, total_steps, seed=asked.ready["seed"])
    return replace(
        _nothing(asked),
        members=members,
        known=known,
        builds=tuple(order.message for order in orders),
        notes=notes,
    )


def _nothing(asked: cmd.PlanAside) -> ev.PlannedAside:
    return ev.PlannedAside(stayers=asked.stayers, newcomers=asked.newcomers, version=asked.version)


def _alone(asked: cmd.PlanAside) -> Known:
    return with_nodes(asked.known, _hosts_of_stayers(asked))


def _hosts_of_stayers(asked: cmd.PlanAside) -> tuple[str, ...]:
    return asked.hosts[: len(asked.stayers)]


def _told(error: Exception) -> str:
    return refusal_of(error) if isinstance(error, PlanError) else f"{type(error).__name__}: {error}"
