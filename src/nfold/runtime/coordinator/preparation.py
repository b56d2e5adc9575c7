"""From ranks that have just said hello to all that a plan rests on: load, profile, wire, probe, pace."""

from collections.abc import Generator, Sequence
from dataclasses import replace
from typing import Any

from nfold.core import codec
from nfold.core.chunks import chunk_sizes
from nfold.core.cluster import Cluster, Node
from nfold.core.graph import ModelGraph
from nfold.core.job import Known
from nfold.core.measured import Measured
from nfold.core.profile import Pace, Profile
from nfold.errors import ProgramError
from nfold.planning.choosing.early_checks import (
    ScheduleEnd,
    check_last_batch,
    check_schedule,
)
from nfold.planning.choosing.search import check_possible
from nfold.planning.choosing.wishes import check_batch
from nfold.planning.costs.read_ahead import least_share, within_cores
from nfold.planning.inputs.chunk_counts import worthwhile_counts
from nfold.planning.inputs.facts import useful_threads, worker_seconds
from nfold.runtime.control import commands as cmd
from nfold.runtime.control import events as ev
from nfold.runtime.coordinator.job_planning import JobPlanning, Ready
from nfold.runtime.coordinator.members.generations import Generations
from nfold.runtime.coordinator.placing.emulated_parts import parts_of
from nfold.runtime.coordinator.rank_requests import Flow, RankRequests
from nfold.runtime.coordinator.same_on_all_ranks import Other, check_alike, joined
from nfold.runtime.measuring.probing_rounds import (
    MOST_PACES,
    PROBING_S,
    Probe,
    affordable,
    best_of,
    expected_passes_s,
    longest_pass_s,
    round_robin,
    seems_held_up,
    with_fast_links,
    with_links,
    with_paces,
)
from nfold.transport.probing.probe import ProbedPair


class Preparation:
    """Measures the program and the machines before ranks build, for one number of workers and servers."""

    def __init__(self, planning: JobPlanning, cores: int, requests: RankRequests, generations: Generations) -> None:
        self._planning, self._settings = planning, planning.settings
        self._cores, self._requests, self._generations = cores, requests, generations
        self._holders: tuple[int, ...] = ()
        """Ranks that hold enough samples to measure the program with; empty: all do."""

    def on_data_of(self, holders: tuple[int, ...]) -> None:
        """Let one of these ranks measure the program, and take all for connected: data live on nodes, and were lent."""
        self._holders = holders

    def load_orders(self, ranks: Sequence[int]) -> list[cmd.Order]:
        """Return the orders that make ranks load the program, each with a device of its own where its host has some."""
        nodes = self._settings.nodes or ("",) * len(ranks)
        local = {rank: nodes[:rank].count(nodes[rank]) for rank in ranks}
        parts = parts_of(self._settings)
        return [
            cmd.Order(
                (rank,),
                {**self.load_order(), "local_rank": local[rank], "node": nodes[rank], "lives": parts[rank]},
            )
            for rank in ranks
        ]

    def load_order(self) -> dict[str, Any]:
        """Return the order that makes every rank load the program, as the first of its host."""
        settings = self._settings
        overrides = {"seed": settings.seed, "chunks": settings.chunks, "loaders": settings.loaders}
        return {
            "do": "load",
            "threads": min(self._threads_of(rank) for rank in range(self._settings.world_size)),
            "local_rank": 0,
            "node": "",
            "lives": None,
            "device": self._settings.device,
            "exact": settings.exact,
            "measure": self._settings.measure,
            "evaluate": self._settings.evaluate and not self._settings.trials,
            "steps": max((trial.steps for trial in self._settings.trials), default=self._settings.steps),
            "overrides": {key: value for key, value in overrides.items() if value is not None},
        }

    def check_ready(self, ready: dict[int, Ready]) -> Ready:
        """Compare what the ranks found; all must see the same program.

        Raises:
            ProgramError: they do not (see `check_alike`), the batch is larger than the data, or the run is longer
                than its schedule of the learning rate.
        """
        first = {
            **ready[0],
            "chunks": ready[0]["chunks"] or self._settings.default_chunks,
            "most_threads": min(each["most_threads"] for each in ready.values()),
        }
        for rank, other in ready.items():
            check_alike(first, Other(rank), other)
        first = joined(first)
        if first["batch_size"] > first["num_samples"]:
            raise ProgramError(
                f"batch_size is {first['batch_size']}, but train_data() has only {first['num_samples']} samples. "
                f"Use a batch size of at most {first['num_samples']}."
            )
        check_schedule(first["schedule_end"] and ScheduleEnd(**first["schedule_end"]), self._planning.run_steps(first))
        return first

    def measure(self, ready: Ready) -> Flow:
        """Return all that is known of program and machines, by measuring. The ranks are connected afterwards.

        Raises:
            PlanError: what the user wants makes no sense for this program.
        """
        check_batch(self._settings.strategy, self._settings.workers, ready["chunks"], ready["batch_size"])
        graph, profiles, cluster = yield from self.profile(ready)
        self._check_kept(graph)
        check_last_batch(graph, self._planning.run_steps(ready))
        check_possible(self._planning.facts(graph, profiles, with_fast_links(cluster), ready), self._settings.strategy)
        self._planning.foresee(graph, profiles, cluster, ready)
        self._requests.say(cmd.Prepared("profiling"))
        if not self._holders:
            yield from self.wire()
        cluster = yield from self.meet(graph, profiles, cluster, ready)
        return Known(graph=graph, profiles=profiles, cluster=cluster)

    def _check_kept(self, graph: ModelGraph) -> None:
        """Refuse to write checkpoints that nobody could go on from.

        Raises:
            ProgramError: model or optimizer keeps something where no checkpoint finds it.
        """
        if not graph.unkept or self._settings.checkpoint_every == 0:
            return
        if self._settings.plan_only or self._settings.trials:
            self._requests.say(cmd.Noted(graph.unkept))  # these write no checkpoint
            return
        raise ProgramError(graph.unkept)

    def profile(
        self, ready: Ready
    ) -> Generator[list[cmd.Command], ev.Event, tuple[ModelGraph, dict[int, Profile], Cluster]]:
        """Capture and time the program on one rank while the others rest."""
        order = {
            "do": "profile",
            "chunk_sizes": self._profiled_sizes(ready),
            "threads": self._profiled_threads(ready["most_threads"]),
            "own_threads": min(ready["most_threads"], self._threads_of(self._profiler)),
            "measure_again": self._settings.measure_again,
            "exact": self._settings.exact,
        }
        reply = (yield from self._requests.ask((self._profiler,), order, "profiled"))[self._profiler]
        if reply["note"]:
            self._requests.say(cmd.Noted(reply["note"]))
        found = codec.decode(Measured, reply["measured"])
        cluster = self._cluster(found.node)
        profiles = {count: replace(profile, profiler=self._profiler) for count, profile in found.profiles.items()}
        share = least_share(cluster, self._planning.nodes(cluster))
        return found.graph, {count: within_cores(each, share) for count, each in profiles.items()}, cluster

    def _cluster(self, measured: Node) -> Cluster:
        """The machines as declared, or as agents told; what the profiler measured of its own goes for all real ones."""
        declared = self._settings.cluster
        if declared is None:
            return Cluster(nodes=(measured,))
        if declared.is_emulated:
            return declared
        alike: dict[str, Any] = {
            "local": measured.local,
            "crowding": measured.crowding,
            "step_cpu_s": measured.step_cpu_s,
        }
        return replace(declared, nodes=tuple(replace(node, **alike) for node in declared.nodes))

    def meet(
        self,
        graph: ModelGraph,
        profiles: dict[int, Profile],
        cluster: Cluster,
        ready: Ready,
    ) -> Generator[list[cmd.Command], ev.Event, Cluster]:
        """Probe the links between the nodes and let all workers compute at once; return the cluster as found."""
        probed = yield from self._probe(cluster)
        cluster = with_links(cluster, self._planning.nodes(cluster), probed)
        if probed:
            self._requests.say(cmd.Prepared("probing links"))
        if self._settings.workers > 1 or self._settings.cluster:
            cluster = yield from self._pace(cluster, profiles, ready, graph)
        return cluster

    def wire(self) -> Flow:
        """Connect these workers and servers to each other, as a generation."""
        yield from self._generations.begin(self._settings.world_size)
        self._requests.say(cmd.Prepared("connecting"))

    def _threads_of(self, rank: int) -> int:
        """A rank's fair share of its node's cores."""
        if self._settings.exact:  # kernels add in another order with another number of threads
            return 1
        nodes, declared = self._settings.nodes, self._settings.cluster
        if declared is None:
            return max(1, self._cores // self._settings.world_size)
        return max(1, int(declared.node(nodes[rank]).cores) // nodes.count(nodes[rank]))

    @property
    def _profiler(self) -> int:
        """The worker that profiles: on a node with most cores, so that every number of threads is real, and of these
        nodes the first with most memory."""
        nodes, declared = self._settings.nodes, self._settings.cluster
        if declared is None:
            return 0
        at = [declared.node(name) for name in nodes[: self._settings.workers]]
        return max(self._holders or range(len(at)), key=lambda rank: (at[rank].cores, at[rank].memory_bytes))

    def _profiled_threads(self, most: int) -> list[int]:
        """The shares of all ranks, one thread, and the whole node for a plain run, as far as torch may have them.

        Only what was measured is planned with, so this is where the user's own limit is kept.
        """
        if self._settings.exact:
            return [1]
        declared = self._settings.cluster
        whole = self._cores if declared is None else int(declared.node(self._settings.nodes[self._profiler]).cores)
        shares = {self._threads_of(rank) for rank in range(self._settings.world_size)}
        return sorted({min(most, count) for count in (max(1, whole), 1, *shares)}, reverse=True)

    def _planned_threads(self, cluster: Cluster, profiles: dict[int, Profile], ready: Ready) -> list[int]:
        """Of each worker, as its plan will have them."""
        nodes, workers = self._planning.nodes(cluster), self._settings.workers
        seconds = worker_seconds(profiles, ready["batch_size"], workers, ready["chunks"])
        return [useful_threads(cluster.node(name).cores, nodes.count(name), seconds) for name in nodes[:workers]]

    def _profiled_sizes(self, ready: Ready) -> list[int]:
        """The whole batch, half of it, and the largest and smallest chunks of every number of workers to be tried.

        A single sample among them is left out again where no chunk has one, which is known once it is captured.
        """
        batch = ready["batch_size"]
        settings = self._settings
        workers = {settings.workers, *settings.measures_for, *(trial.workers for trial in settings.trials)}
        tried = {count for each in workers for count in (each, worthwhile_counts(each, batch, 1)[-1])}
        counts = {1, 2, *({ready["chunks"]} if ready["chunks"] else tried)}
        return sorted({max(chunk_sizes(batch, count, 1)) for count in counts if count <= batch})

    def _probe(self, cluster: Cluster) -> Generator[list[cmd.Command], ev.Event, dict[Probe, ProbedPair]]:
        """Probe all pairs of nodes, or of many, distant or badly linked ones some, a round at a time."""
        found: dict[Probe, ProbedPair] = {}
        rounds, num_peers = round_robin(self._planning.nodes(cluster)), len(set(self._planning.nodes(cluster))) - 1
        for done, pairs in enumerate(rounds):
            if done == 1:
                del rounds[affordable(len(rounds), found) :]
                if num_peers > len(rounds):
                    self._requests.say(cmd.Noted(_tell_sample(len(rounds), num_peers)))
            orders = [
                cmd.Order((rank,), {"do": "probe", "peer": peer, "measures": rank == pair.measures, "patience_s": None})
                for pair in pairs
                for rank, peer in ((pair.measures, pair.echoes), (pair.echoes, pair.measures))
            ]
            ranks = tuple(rank for order in orders for rank in order.ranks)
            replies = yield from self._requests.collect(ranks, orders, "probed")
            found |= {pair: codec.decode(ProbedPair, replies[pair.measures]["found"]) for pair in pairs}
        return found

    def _pace(
        self, cluster: Cluster, profiles: dict[int, Profile], ready: Ready, graph: ModelGraph
    ) -> Generator[list[cmd.Command], ev.Event, Cluster]:
        """Let all workers compute at once: what they slow each other down, and how unlike the nodes are.

        Where one was slow they do so again: a slow node stays slow, one that was held up for a moment does not.
        """
        workers = tuple(range(self._settings.workers))
        threads = self._planned_threads(cluster, profiles, ready)
        chunk_size = graph.only_samples or self._paced_size(cluster, profiles[threads[0]], ready)
        nodes = self._planning.nodes(cluster)
        passes_s = expected_passes_s(cluster, nodes, threads, profiles, chunk_size)
        longest_s = longest_pass_s(cluster, nodes, passes_s, profiler=self._profiler)
        orders = [
            cmd.Order(
                (rank,),
                {"do": "pace", "chunk_size": chunk_size, "threads": threads[rank], "longest_pass_s": longest_s},
            )
            for rank in workers
        ]
        paces = yield from self._paced(orders)
        for _ in range(MOST_PACES - 1):
            if not seems_held_up(cluster, nodes, passes_s, paces):
                break
            paces, was_held_up = best_of(paces, (yield from self._paced(orders)))
            if not was_held_up:
                break
        return with_paces(cluster, nodes, passes_s, paces, num_tensors=len(graph.trained))

    def _paced(self, orders: list[cmd.Order]) -> Generator[list[cmd.Command], ev.Event, dict[int, Pace]]:
        replies = yield from self._requests.collect(tuple(range(self._settings.workers)), orders, "paced")
        return {rank: codec.decode(Pace, reply["pace"]) for rank, reply in replies.items()}

    def _paced_size(self, cluster: Cluster, profile: Profile, ready: Ready) -> int:
        """A worker's share of the batch, or as much of it as every node has room for beside weights and gradients.

        A chunk has at least two samples where there are enough (see `chunk_sizes`).
        """
        nodes = self._planning.nodes(cluster)
        shares = (cluster.node(name).memory_bytes / nodes.count(name) for name in set(nodes))
        room = min(shares) - profile.base_bytes - 2 * profile.parameter_bytes
        fits = int(room / max(1.0, profile.activation_bytes_per_sample))
        wanted = max(chunk_sizes(ready["batch_size"], ready["chunks"] or self._settings.workers))
        return max(min(2, wanted), min(wanted, fits))


def _tell_sample(num_probed: int, num_peers: int) -> str:
    return (
        f"note: each node's link is probed with {num_probed} of its {num_peers} peers, which takes {PROBING_S:g} s at "
        f"most where links are neither slow nor long, and counts as fast as with the fastest of them"
    )
