"""The files of a run's folder -> report.html: the verdict first, then what it rests on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nfold.analysis.measured.bound_waits import bound_waits_s
from nfold.analysis.measured.gradient_ages import is_old
from nfold.core.cluster import Cluster
from nfold.core.environment import Environment
from nfold.core.graph import ModelGraph
from nfold.core.plan import Plan
from nfold.core.report import Report
from nfold.core.trace import Trace
from nfold.view.explain import places_text
from nfold.view.html.charts import Chart
from nfold.view.html.document import document
from nfold.view.html.grid_chart import grid_chart
from nfold.view.html.meters import node_meters
from nfold.view.html.run_charts import loss_chart, nodes_chart, staleness_chart
from nfold.view.html.scaling_chart import Scaling, scaling_chart
from nfold.view.html.timeline_chart import timeline_chart
from nfold.view.tables import run_name

_NEGLIGIBLE = 0.005
_MOST_NODES = 64
"""Nodes in tables."""
_MOST_EVENTS = 100


@dataclass(frozen=True, kw_only=True, slots=True)
class RunFacts:
    """All that is known of a run when it has ended."""

    folder: str
    report: Report
    plan: Plan
    cluster: Cluster
    graph: ModelGraph
    trace: Trace
    history: Sequence[Mapping[str, Any]]
    scaling: Scaling
    environment: Environment | None = None
    """None: the run was made by a version that did not write it down."""


def run_page(facts: RunFacts) -> str:
    """Return the page, a whole HTML document of less than 2 MB."""
    report = facts.report
    total_s = sum(report.ledger.values())
    in_use = list(dict.fromkeys(facts.plan.nodes))
    return document(
        "run.html",
        charts=_charts(facts),
        title=f"{run_name(report)}: {report.verdict.kind}",
        folder=facts.folder,
        plan=facts.plan,
        cluster=facts.cluster,
        environment=facts.environment,
        report=report,
        verdict=report.verdict,
        is_in_steps_per_s=is_old(report.ages),
        name=run_name(report),
        causes=[cause for cause in report.causes if cause.share >= _NEGLIGIBLE],
        ledger=sorted(report.ledger.items(), key=lambda item: -item[1]),
        ledger_s=total_s,
        places=places_text(report.places),
        events=report.events[-_MOST_EVENTS:],
        num_unshown=max(0, len(report.events) - _MOST_EVENTS),
        meters=node_meters(facts.trace, facts.cluster, facts.plan.nodes, in_use[:_MOST_NODES]),
        num_unmetered=max(0, len(in_use) - _MOST_NODES),
        nodes=facts.cluster.nodes[:_MOST_NODES],
        num_unlisted=max(0, len(facts.cluster.nodes) - _MOST_NODES),
        no_scaling="" if facts.scaling.curves else facts.scaling.note,
    )


def _charts(facts: RunFacts) -> list[Chart]:
    nodes = facts.plan.nodes
    drawn = (
        timeline_chart(facts.trace.steps, nodes),
        grid_chart(facts.plan.placement, facts.graph),
        nodes_chart(facts.trace, nodes, bound_waits_s(facts.plan, facts.trace)),
        scaling_chart(facts.scaling.curves, note=facts.scaling.note),
        loss_chart(facts.history, facts.report.events),
        staleness_chart(facts.trace.ages),
    )
    return [chart for chart in drawn if chart is not None]
