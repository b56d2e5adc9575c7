"""Several plans one after another with the same ranks: what a comparison needs, without starting anything twice.

    load ─> profile ─┬─> wire ─> (links) ─> probe, pace ─> plan ─> build ─> until ─> drop ─┐
                     └─────────────────────── next trial ──────────────────────────────────┘

The first ranks of a trial are its workers, the next ones its dedicated servers; the others rest.
"""

from dataclasses import replace
from typing import Any

from nfold.core import codec
from nfold.core.cluster import Cluster
from nfold.core.graph import ModelGraph
from nfold.core.job import JobSettings, Known, Trial
from nfold.core.plan import Plan
from nfold.core.profile import Profile
from nfold.core.trace import RankUsage
from nfold.errors import PlanError
from nfold.planning.choosing.advice import Refused
from nfold.planning.residency.epoch_steps import EpochSteps
from nfold.runtime.control import commands as cmd
from nfold.runtime.control import events as ev
from nfold.runtime.coordinator.job_planning import JobPlanning, Ready, build_orders
from nfold.runtime.coordinator.members.generations import Generations
from nfold.runtime.coordinator.preparation import Preparation
from nfold.runtime.coordinator.progress import Progress
from nfold.runtime.coordinator.rank_requests import Flow, RankRequests
from nfold.runtime.measuring.probing_rounds import with_rate


def try_all(settings: JobSettings, cores: int, requests: RankRequests, generations: Generations, ready: Ready) -> Flow:
    """Play every trial in a generation of its own; the commands tell which of them steps belong to."""
    everyone = tuple(range(settings.world_size))
    graph, profiles, declared = yield from Preparation(JobPlanning(settings), cores, requests, generations).profile(
        ready
    )
    trials = _Trials(settings, cores, requests, generations, ready, graph, profiles, declared)
    for index, trial in enumerate(settings.trials):
        yield from trials.play(index, trial)
    yield from requests.ask(everyone, {"do": "finish", "tag": 0}, "finished")
    return [cmd.Finished()]


class _Trials:
    """What all trials share: the profile, and what each set of ranks found of links and paces."""

    def __init__(
        self,
        settings: JobSettings,
        cores: int,
        requests: RankRequests,
        generations: Generations,
        ready: Ready,
        graph: ModelGraph,
        profiles: dict[int, Profile],
        declared: Cluster,
    ) -> None:
        self._settings, self._cores, self._requests, self._generations = settings, cores, requests, generations
        self._ready = ready
        self._graph, self._profiles, self._declared = graph, profiles, declared
        self._met: dict[tuple[int, int, float | None], Cluster] = {}
        self._link_bytes_per_s: float | None = None

    def play(self, index: int, trial: Trial) -> Flow:
        """Measure, plan, build, train and forget."""
        settings = replace(
            self._settings,
            strategy=trial.strategy,
            workers=trial.workers,
            servers=trial.servers,
            nodes=self._settings.nodes[: trial.world_size],
            trials=(),
        )
        planning = JobPlanning(settings)
        preparation = Preparation(planning, self._cores, self._requests, self._generations)
        try:
            planning.foresee(self._graph, self._profiles, self._linked(trial), self._ready)
            yield from preparation.wire()
            cluster = yield from self._meet(preparation, trial)
            known = Known(graph=self._graph, profiles=self._profiles, cluster=cluster)
            chosen = planning.plan(known, self._ready)
        except PlanError as error:
            self._requests.say(cmd.TrialRefused(index, error.reason if isinstance(error, Refused) else str(error)))
            return
        known = replace(known, plan=chosen)
        ranks = tuple(range(chosen.world_size))
        self._requests.say(cmd.TrialPlanned(index, known))
        yield from self._requests.collect(ranks, build_orders(known, chosen, trial.steps), "built")
        replies = yield from self._train(ranks, chosen, trial.steps)
        self._requests.say(cmd.TrialDone(index, tuple(_usage(replies[rank]) for rank in ranks)))

    def _linked(self, trial: Trial) -> Cluster:
        """Return the machines as declared, with the links of a trial."""
        rate = trial.link_bytes_per_s or self._link_bytes_per_s
        return self._declared if rate is None else with_rate(self._declared, rate)

    def _train(self, ranks: tuple[int, ...], chosen: Plan, steps: int) -> Flow:
        """Play the steps, make the ranks forget, and return what each of them says at the end."""
        epochs = EpochSteps.even(-(-self._ready["num_samples"] // chosen.batch_size))
        progress = Progress(ranks, chosen, 0, epochs)
        commands: list[cmd.Command] = [cmd.Order(ranks, {"do": "until", "step": steps})]
        while progress.done < steps:
            event = yield commands
            commands = []
            if isinstance(event, ev.Interrupted):
                raise event.as_error()
            if isinstance(event, ev.Received):
                commands = progress.take(event)
        self._requests.say(*commands)
        return (yield from self._requests.ask(ranks, {"do": "drop"}, "dropped"))

    def _meet(self, preparation: Preparation, trial: Trial) -> Flow:
        """Probe and pace once for each set of ranks and speed of links."""
        if trial.link_bytes_per_s is not None and trial.link_bytes_per_s != self._link_bytes_per_s:
            self._link_bytes_per_s = trial.link_bytes_per_s
            self._requests.say(cmd.SetLinks(trial.link_bytes_per_s))
        key = (trial.workers, trial.servers, self._link_bytes_per_s)
        if key not in self._met:
            self._met[key] = yield from preparation.meet(self._graph, self._profiles, self._declared, self._ready)
        return self._met[key]


def _usage(reply: dict[str, Any]) -> RankUsage:
    return codec.decode(RankUsage, reply["usage"])
