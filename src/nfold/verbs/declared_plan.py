"""Plans for machines that are only described: the program is measured here, the machines are taken at their word."""

from dataclasses import replace
from math import inf
from pathlib import Path

from nfold.core.cluster import Cluster
from nfold.core.plan import Plan
from nfold.core.text.cluster_file import read_cluster
from nfold.errors import InternalError, PlanError
from nfold.launch.emulation.cgroups import with_quotas
from nfold.planning.choosing.early_checks import time_notes
from nfold.planning.choosing.first_step import first_step_notes
from nfold.planning.choosing.search import plan
from nfold.planning.choosing.strategies import Single
from nfold.planning.costs.read_ahead import least_share, within_cores
from nfold.program import Program, ProgramSource
from nfold.verbs.options.option_checks import Options, Wishes
from nfold.verbs.options.rank_nodes import nodes_of_ranks, tell_shared_servers
from nfold.verbs.results.summary import RunOutcome
from nfold.verbs.running.observer import Observer
from nfold.verbs.running.run_job import Job


def plan_declared(
    source: ProgramSource | Program, cluster: str | Path | Cluster, wishes: Wishes, observer: Observer
) -> Plan:
    """Plan for a declared cluster with one rank per node, unless the wishes say otherwise.

    Links cost no processor time there, since nobody has measured any: on slow processors the truth is slower.

    Raises:
        NfoldError: the file or the wishes make no sense, or the program cannot be measured.
    """
    declared = with_quotas(cluster if isinstance(cluster, Cluster) else read_cluster(cluster))
    if wishes.get("emulate") is not None:
        raise PlanError("--cluster takes the machines at their word and --emulate measures them. Use one of them.")
    if wishes.get("place") is not None:
        raise PlanError(
            "--cluster and --place: nfold place CLUSTER.toml --program FILE.py says where data should live."
        )
    named = {"workers": max(1, len(declared.nodes) - wishes.get("servers", 0)), **wishes}
    asked = Options(**named)
    alone = measure_alone(source, asked, observer)
    assert alone.measured is not None, "measuring ends with what it found"
    question = alone.measured.question
    nodes = nodes_of_ranks(declared, asked.workers + asked.servers)
    share = least_share(declared, nodes)
    facts = replace(
        question,
        profiles={count: within_cores(each, share) for count, each in question.profiles.items()},
        cluster=declared,
        nodes=nodes,
        workers=asked.workers,
        servers=asked.servers,
        staleness=asked.staleness,
        staleness_aware=asked.staleness_aware,
    )
    found = plan(facts, asked.strategy)
    shared = tell_shared_servers(found.nodes, found.workers)
    foretold = (
        *alone.foretold,
        *first_step_notes(found, asked.first_step_within),
        *time_notes(alone.measured.run_steps, found.predicted.step_s, asked.stop_after_s, asked.checkpoint_every),
    )
    return replace(found, notes=(*found.notes, *([shared] if shared else []), *foretold))


def measure_alone(source: ProgramSource | Program, asked: Options, observer: Observer) -> RunOutcome:
    """Measure the program with one rank on this machine. Its steps here are not those that limits of time are for."""
    by_itself = replace(
        asked,
        workers=1,
        servers=0,
        strategy=Single.name,
        staleness=None,
        staleness_aware=False,
        first_step_within=inf,
        stop_after=None,
        place=None,
    )
    job = Job(source, by_itself, observer, folder=None, plan_only=True)
    for _ in job.play():
        raise InternalError("a plan played a step")
    if job.outcome.measured is None:
        raise InternalError("planning ended without measurements")
    return job.outcome
