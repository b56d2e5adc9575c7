"""Folders of runs -> a Comparison: what each cost and when it had learnt, who wins where, and what to expect beyond."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite

from nfold.analysis.measured.steps_to_loss import common_loss, running_losses, steps_to_loss
from nfold.analysis.measured.winners import narrowed, takeovers, winners
from nfold.core.cluster import Cluster
from nfold.core.findings.comparison import Architecture, Compared, Comparison, Crossover, Throughput
from nfold.core.job import Known
from nfold.core.plan import Plan
from nfold.core.report import Report
from nfold.core.text.units import link_rate
from nfold.errors import InternalError
from nfold.verbs.results.scaling_forecast import predicted_point, predicted_points
from nfold.verbs.run_folder.folder import RunFolder
from nfold.view.html.charts import thinned
from nfold.view.tables import run_name

_HOUR_S = 3600
_MOST_DRAWN = 100
"""Points of a run's loss over time."""
_MOST_AVERAGED = 10
"""Losses in the mean that is compared with the target; fewer in runs of less than twenty steps."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ComparedRun:
    """A run that is to be compared with others."""

    folder: RunFolder
    link_bytes_per_s: float | None = None
    """Where the comparison varies the links."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Run:
    """What its folder holds."""

    entry: ComparedRun
    report: Report
    known: Known
    plan: Plan
    losses: tuple[float, ...]
    """By step."""
    at_s: tuple[float | None, ...]
    """When the step was done, by step; None in runs that did not write it down."""
    steps_per_epoch: int | None


_Largest = dict[tuple[str, float | None], _Run]
"""By architecture and link: the run with most workers."""


def concluded(entries: Sequence[ComparedRun], target_loss: float | None = None) -> Comparison:
    """Return what the runs amount to together.

    Args:
        entries: runs that have ended, the plain single-device run first if there is one.
        target_loss: None: the lowest that all of them reached.

    Raises:
        PlanError: a run has not ended.
    """
    runs = [_read(entry) for entry in entries]
    reach = max(1, min([_MOST_AVERAGED, *(len(run.losses) // 2 for run in runs)]))
    target = common_loss([run.losses for run in runs], reach) if target_loss is None else target_loss
    if any(at_s is None for run in runs for at_s in run.at_s):
        target = None  # a run of an older version did not write down when its steps were done
    judged_by_steps = [run for run in runs if run.report.workers > 1 and run.plan.asynchrony is None]
    measured = tuple(_throughput(run) for run in judged_by_steps)
    largest = _largest(judged_by_steps)
    predicted = tuple(point for run in largest.values() for point in _beyond(run))
    won = winners((*measured, *predicted))
    return Comparison(
        runs=tuple(_compared(run, target, reach) for run in runs),
        target_loss=target,
        predicted=predicted,
        winners=won,
        takeovers=tuple(_narrowed(takeover, largest) for takeover in takeovers(won)),
    )


def _read(entry: ComparedRun) -> _Run:
    report, known = entry.folder.report(), entry.folder.known()
    steps = [line for line in entry.folder.history() if not line["metrics"]]
    if known.plan is None:
        raise InternalError(f"{entry.folder.path} holds a report and no plan")
    is_script = (entry.folder.path / "job.json").exists()
    return _Run(
        entry=entry,
        report=report,
        known=known,
        plan=known.plan,
        losses=tuple(line["loss"] for line in steps),
        at_s=tuple(line.get("at_s") for line in steps),
        steps_per_epoch=entry.folder.record().steps_per_epoch if is_script else None,
    )


def _compared(run: _Run, target: float | None, reach: int) -> Compared:
    link = run.entry.link_bytes_per_s
    epoch_s = None
    if run.steps_per_epoch:
        epoch_s = run.steps_per_epoch * run.report.batch_size / run.report.samples_per_s
    steps = None if target is None else steps_to_loss(run.losses, target, reach)
    return Compared(
        name=run_name(run.report) + (f", {link_rate(link)}" if link else ""),
        folder=str(run.entry.folder.path),
        report=run.report,
        link_bytes_per_s=link,
        epoch_s=epoch_s,
        cost_per_epoch=_cost(run.plan, run.known.cluster, epoch_s),
        time_to_loss_s=None if steps is None else run.at_s[steps - 1],
        loss_over_time=_loss_over_time(run, reach),
        is_asynchronous=run.plan.asynchrony is not None,
    )


def _loss_over_time(run: _Run, reach: int) -> tuple[tuple[float, float], ...]:
    means = running_losses(run.losses, reach)
    at_s = run.at_s[reach - 1 :]
    every = [(second, mean) for second, mean in zip(at_s, means, strict=True) if second is not None and isfinite(mean)]
    return tuple((round(every[k][0], 4), float(f"{every[k][1]:.5g}")) for k in thinned(len(every), _MOST_DRAWN))


def _cost(plan: Plan, cluster: Cluster, epoch_s: float | None) -> float | None:
    """Return what the nodes in use cost over an epoch; a node with several ranks is paid once."""
    per_hour = sum(cluster.node(name).price_per_hour for name in set(plan.nodes))
    return None if epoch_s is None or not per_hour else per_hour * epoch_s / _HOUR_S


def _throughput(run: _Run) -> Throughput:
    return Throughput(
        architecture=_architecture(run.report).name,
        workers=run.report.workers,
        link_bytes_per_s=run.entry.link_bytes_per_s,
        samples_per_s=run.report.samples_per_s,
        origin="measured",
        servers=run.report.servers,
    )


def _largest(runs: Sequence[_Run]) -> _Largest:
    """Return the run with most workers of each architecture on each link."""
    largest: _Largest = {}
    for run in sorted(runs, key=lambda run: run.report.workers):
        largest[_architecture(run.report).name, run.entry.link_bytes_per_s] = run
    return largest


def _beyond(run: _Run) -> list[Throughput]:
    """Predict the same architecture, cutting the same batch, with more workers than were measured."""
    points = predicted_points(run.known, run.plan, least=run.report.workers + 1)
    factor = _over_prediction(run) if points else 1.0
    return [
        Throughput(
            architecture=_architecture(run.report).name,
            workers=point.workers,
            link_bytes_per_s=run.entry.link_bytes_per_s,
            samples_per_s=factor * point.samples_per_s,
            origin="predicted",
            servers=run.report.servers,
        )
        for point in points
    ]


def _over_prediction(run: _Run) -> float:
    """Return how much faster a run was than is predicted for its size: what is predicted of larger ones is as far off.

    Else a curve would jump where measuring ends, and who takes over there might be who was predicted too well.
    """
    return run.report.samples_per_s / predicted_point(run.known, run.plan, run.report.workers).samples_per_s


def _narrowed(takeover: Crossover, largest: _Largest) -> Crossover:
    """Say with how many workers another takes over, where both can be asked about any number."""
    if takeover.origin == "measured":
        return takeover
    winner, loser = (largest[name, takeover.link_bytes_per_s] for name in (takeover.winner, takeover.loser))
    lead = _over_prediction(winner) / _over_prediction(loser)

    def wins(workers: int) -> bool:
        speeds = (predicted_point(run.known, run.plan, workers).samples_per_s for run in (winner, loser))
        return lead * next(speeds) > next(speeds)

    return narrowed(takeover, wins)


def _architecture(report: Report) -> Architecture:
    return Architecture(strategy=report.strategy, servers=report.servers)
