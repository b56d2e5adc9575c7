"""Decides what the ranks of a job do next. Pure: events in, commands out; no clock, no sockets, no processes.

    load ─> profile ─> listen, connect ─> probe, pace ─> plan ─> build ─> until / evaluate / checkpoint .. ─> finish
      └──────────────── any rank fails ──> post-mortem: who was first? ──> Failed

The job is one generator that is sent events and yields commands, so it reads in the order in which things happen. Ranks
may run a little ahead of what they reported, a window of about a third of a second, so that reports never hold up a
step and a stop is never far away.
"""

from collections.abc import Generator, Mapping
from dataclasses import replace
from typing import Any

from nfold.core import codec
from nfold.core.cluster import Cluster, Node
from nfold.core.graph import ModelGraph
from nfold.core.plan import Plan
from nfold.core.profile import Profile
from nfold.core.trace import RankUsage
from nfold.errors import NfoldError, ProgramError
from nfold.planning.facts import Facts, fair_threads
from nfold.planning.search import check, plan
from nfold.runtime import events as ev
from nfold.runtime.measuring import Probe, tournament, with_links, with_paces
from nfold.runtime.postmortem import Postmortem
from nfold.runtime.progress import Progress
from nfold.transport.probe import ProbedPair

Flow = Generator[list[ev.Command], ev.Event, Any]

POSTMORTEM_S = 0.4
"""How long the other ranks have to say what they saw, after the first bad news."""


class Coordinator:
    """One job."""

    def __init__(
        self,
        settings: ev.JobSettings,
        *,
        cores: int,
        known: ev.Known | None = None,
        checkpoint: bytes = b"",
        first_step: int = 0,
    ) -> None:
        self._settings, self._cores = settings, cores
        self._known, self._checkpoint, self._first_step = known, checkpoint, first_step
        self._postmortem = Postmortem(settings.world_size)
        self._gathers = self._steps_asked = 0
        self._interrupted = False
        self._flow = self._run()
        self._over = False

    def start(self, places: Mapping[int, tuple[str, int]]) -> list[ev.Command]:
        """Return the first commands; call it once, when every rank has said hello.

        Args:
            places: host and process id of each rank.
        """
        for rank, (host, pid) in places.items():
            self._postmortem.place(rank, host, pid)
        return self._advance(None)

    def handle(self, event: ev.Event) -> list[ev.Command]:
        """Take in an event and return what to do about it."""
        if self._over:
            return []
        if isinstance(event, ev.Continue):
            self._steps_asked += 1  # here, because it may come while the ranks are still getting ready
        if isinstance(event, ev.Left):
            self._postmortem.left(event.rank, event.status)
        elif isinstance(event, ev.Received) and event.message["is"] == "failed":
            self._postmortem.failed(event.rank, event.message)
        elif isinstance(event, ev.Received) and event.message["is"] == "finished":
            self._postmortem.excuse((event.rank,))  # it may leave before the others have finished
        if self._postmortem.open:
            return self._examine(event)
        return self._advance(event)

    def _advance(self, event: ev.Event | None) -> list[ev.Command]:
        try:
            return self._flow.send(event)  # type: ignore[arg-type]
        except StopIteration as end:
            self._over = True
            return list(end.value or [])
        except (NfoldError, KeyboardInterrupt) as error:
            self._over = True
            return [ev.Failed(error)]

    def _examine(self, event: ev.Event) -> list[ev.Command]:
        """Collect what every rank has to say, then name the first cause."""
        if not self._postmortem.complete and not isinstance(event, ev.TimedOut):
            return [ev.SetTimer(POSTMORTEM_S)] if self._postmortem.take_first() else []
        self._over = True
        return [ev.Failed(self._postmortem.error(), self._postmortem.details())]

    # The job, in order

    def _run(self) -> Flow:
        everyone = tuple(range(self._settings.world_size))
        ready = yield from self._ask(everyone, self._load_orders(), "ready")
        facts = self._check_ready(ready)
        self._check_same_batch(facts)
        if self._known is None:
            known = yield from self._measure(facts)
        else:
            known = self._known
            yield from self._wire()
        chosen = known.plan or self._plan(known, facts)
        known = replace(known, plan=chosen)
        total, per_epoch = self._count_steps(facts)
        planned = ev.Planned(known, chosen, total, per_epoch, self._first_step)
        if self._settings.plan_only:
            yield from self._ask(everyone, {"do": "finish", "tag": 0}, "finished", before=[planned])
            return [ev.Finished()]
        idle = everyone[chosen.world_size :]
        if idle:
            yield from self._ask(idle, {"do": "finish", "tag": 0}, "finished")
        ranks = everyone[: chosen.world_size]
        yield from self._ask(ranks, self._build_order(known, chosen, total), "built", self._checkpoint, [planned])
        return (yield from self._train(ranks, chosen, facts, total, per_epoch))

    def _load_orders(self) -> dict[str, Any]:
        overrides = {"seed": self._settings.seed, "chunks": self._settings.chunks}
        return {
            "do": "load",
            "threads": min(self._threads_of(rank) for rank in range(self._settings.world_size)),
            "local_rank": 0,
            "device": self._settings.device,
            "overrides": {key: value for key, value in overrides.items() if value is not None},
        }

    def _nodes(self, cluster: Cluster) -> tuple[str, ...]:
        """Node of each rank."""
        return self._settings.nodes or (cluster.nodes[0].name,) * self._settings.world_size

    def _threads_of(self, rank: int) -> int:
        """A rank's fair share of its node's cores."""
        nodes, declared = self._settings.nodes, self._settings.cluster
        if declared is None:
            return max(1, self._cores // self._settings.world_size)
        return max(1, int(declared.node(nodes[rank]).cores) // nodes.count(nodes[rank]))

    @property
    def _profiler(self) -> int:
        """The worker that profiles: the first on a node with most cores, so that every number of threads is real."""
        nodes, declared = self._settings.nodes, self._settings.cluster
        if declared is None:
            return 0
        return max(range(self._settings.workers), key=lambda rank: declared.node(nodes[rank]).cores)

    def _profiled_threads(self) -> list[int]:
        """The shares of all ranks, one thread, and the whole node for a plain run."""
        declared = self._settings.cluster
        whole = self._cores if declared is None else int(declared.node(self._settings.nodes[self._profiler]).cores)
        shares = {self._threads_of(rank) for rank in range(self._settings.world_size)}
        return sorted({max(1, whole), 1, *shares}, reverse=True)

    def _planned_threads(self, cluster: Cluster, profiles: dict[int, Profile], rank: int) -> int:
        nodes = self._nodes(cluster)
        return fair_threads(cluster.node(nodes[rank]).cores, nodes.count(nodes[rank]), profiles)

    def _check_ready(self, ready: dict[int, dict[str, Any]]) -> dict[str, Any]:
        """Compare what the ranks found; all must see the same program.

        Raises:
            ProgramError: they do not, or the batch is larger than the data.
        """
        facts = {**ready[0], "chunks": ready[0]["chunks"] or self._settings.default_chunks}
        for rank, other in ready.items():
            for key, what in (("num_samples", "samples of train_data()"), ("weights", "first weights (a checksum)")):
                if other[key] != facts[key]:
                    raise ProgramError(
                        f"ranks 0 and {rank} built different programs: {what} are {facts[key]} and {other[key]}. "
                        "Everything random in model() and train_data() must follow from the seed."
                    )
        if facts["batch_size"] > facts["num_samples"]:
            raise ProgramError(
                f"batch_size is {facts['batch_size']}, but train_data() has only {facts['num_samples']} samples. "
                f"Use a batch size of at most {facts['num_samples']}."
            )
        return facts

    def _check_same_batch(self, facts: dict[str, Any]) -> None:
        """Refuse to go on with a program whose steps are others now.

        Raises:
            ProgramError: the batch size differs from the plan's.
        """
        begun = self._known.plan if self._known else None
        if begun is not None and begun.batch_size != facts["batch_size"]:
            raise ProgramError(
                f"the run was begun with a batch size of {begun.batch_size}, and the program has "
                f"{facts['batch_size']} now. Put it back, or begin a new run."
            )

    def _measure(self, facts: dict[str, Any]) -> Flow:
        """Profile on one rank while the others rest, wire the ranks, probe their links, and let all compute at once."""
        order = {
            "do": "profile",
            "chunk_sizes": self._profiled_sizes(facts),
            "threads": self._profiled_threads(),
            "own_threads": self._threads_of(self._profiler),
        }
        reply = (yield from self._ask((self._profiler,), order, "profiled"))[self._profiler]
        graph = codec.decode(ModelGraph, reply["graph"])
        profiles = {int(count): codec.decode(Profile, each) for count, each in reply["profiles"].items()}
        cluster = self._settings.cluster or Cluster(nodes=(codec.decode(Node, reply["node"]),))
        self._check_wishes(graph, profiles, cluster, facts)
        yield from self._wire()
        cluster = with_links(cluster, self._nodes(cluster), (yield from self._probe(cluster)))
        if self._settings.workers > 1 or self._settings.cluster:
            cluster = yield from self._pace(cluster, profiles, facts)
        return ev.Known(graph=graph, profiles=profiles, cluster=cluster)

    def _profiled_sizes(self, facts: dict[str, Any]) -> list[int]:
        batch, chunks = facts["batch_size"], facts["chunks"] or self._settings.workers
        return sorted({-(-batch // count) for count in (1, 2, max(1, chunks)) if count <= batch})

    def _wire(self) -> Flow:
        everyone = tuple(range(self._settings.world_size))
        listening = yield from self._ask(everyone, {"do": "listen"}, "listening")
        addresses = [listening[rank]["address"] for rank in everyone]
        yield from self._ask(everyone, {"do": "connect", "addresses": addresses}, "connected")

    def _probe(self, cluster: Cluster) -> Generator[list[ev.Command], ev.Event, dict[Probe, ProbedPair]]:
        """Probe all pairs of nodes, a round at a time."""
        found: dict[Probe, ProbedPair] = {}
        for pairs in tournament(self._nodes(cluster)):
            orders = [
                ev.Order((rank,), {"do": "probe", "peer": peer, "measures": rank == pair.measures})
                for pair in pairs
                for rank, peer in ((pair.measures, pair.echoes), (pair.echoes, pair.measures))
            ]
            ranks = tuple(rank for order in orders for rank in order.ranks)
            replies = yield from self._collect(ranks, orders, "probed")
            found |= {pair: codec.decode(ProbedPair, replies[pair.measures]["found"]) for pair in pairs}
        return found

    def _pace(
        self, cluster: Cluster, profiles: dict[int, Profile], facts: dict[str, Any]
    ) -> Generator[list[ev.Command], ev.Event, Cluster]:
        """Let all workers compute at once: what they slow each other down, and how unlike the nodes are."""
        workers = tuple(range(self._settings.workers))
        chunk_size = -(-facts["batch_size"] // (facts["chunks"] or self._settings.workers))
        threads = [self._planned_threads(cluster, profiles, rank) for rank in workers]
        orders = [
            ev.Order((rank,), {"do": "pace", "chunk_size": chunk_size, "threads": threads[rank]}) for rank in workers
        ]
        replies = yield from self._collect(workers, orders, "paced")
        paces_s = {rank: reply["pass_s"] for rank, reply in replies.items()}
        return with_paces(cluster, self._nodes(cluster), threads, profiles, chunk_size, paces_s)

    def _plan(self, known: ev.Known, facts: dict[str, Any]) -> Plan:
        return plan(self._facts(known.graph, known.profiles, known.cluster, facts), self._settings.strategy)

    def _check_wishes(
        self, graph: ModelGraph, profiles: dict[int, Profile], cluster: Cluster, facts: dict[str, Any]
    ) -> None:
        """Refuse what makes no sense before anything is wired."""
        check(self._facts(graph, profiles, cluster, facts), self._settings.strategy)

    def _facts(self, graph: ModelGraph, profiles: dict[int, Profile], cluster: Cluster, facts: dict[str, Any]) -> Facts:
        return Facts(
            graph=graph,
            profiles=profiles,
            cluster=cluster,
            nodes=self._nodes(cluster),
            workers=self._settings.workers,
            servers=self._settings.servers,
            batch_size=facts["batch_size"],
            chunks=facts["chunks"],
        )

    def _count_steps(self, facts: dict[str, Any]) -> tuple[int, int]:
        per_epoch = -(-facts["num_samples"] // facts["batch_size"])
        return self._settings.steps or facts["epochs"] * per_epoch, per_epoch

    def _build_order(self, known: ev.Known, chosen: Plan, total: int) -> dict[str, Any]:
        seconds = known.profiles[chosen.threads[0]].operators_s(chosen.batch_size / chosen.chunks)
        complete = all(operator.name in seconds for operator in known.graph.operators)
        return {
            "do": "build",
            "graph": codec.encode(known.graph),
            "plan": codec.encode(chosen),
            "operator_seconds": {name: list(pair) for name, pair in seconds.items()} if complete else None,
            "total_steps": total,
        }

    # Training

    def _train(self, ranks: tuple[int, ...], chosen: Plan, facts: dict[str, Any], total: int, per_epoch: int) -> Flow:
        progress = Progress(ranks, chosen, self._first_step, per_epoch)
        commands: list[ev.Command] = []
        has_test = bool(facts["has_test"]) and self._settings.evaluate
        self._postmortem.ordered("until")
        granted = self._first_step
        while progress.done < total:
            allowed = self._first_step + self._steps_asked if self._settings.lockstep else total
            stop = min(self._next_stop(granted, total, per_epoch), allowed, progress.done + progress.window())
            if stop > granted and not self._interrupted:
                commands.append(ev.Order(ranks, {"do": "until", "step": stop}))
                granted = stop
                commands += self._orders_at(granted, ranks, total, per_epoch, has_test, progress)
                continue
            if self._interrupted and progress.done == granted and not progress.pending:
                break
            event = yield commands
            commands = []
            if isinstance(event, ev.Interrupted):
                self._interrupted = True
            elif isinstance(event, ev.Received):
                commands += progress.take(event)
                self._postmortem.reached(progress.done)
        if self._interrupted and granted < total and self._settings.checkpoint_every != 0:
            commands.append(ev.Order(ranks, {"do": "checkpoint", "tag": self._next_tag()}))
            progress.pending.append((granted, "checkpoint", set(ranks)))
        commands.append(ev.Order(ranks, {"do": "finish", "tag": self._next_tag()}))
        self._postmortem.ordered("finish")
        return (yield from self._finish(ranks, progress, commands, total))

    def _finish(self, ranks: tuple[int, ...], progress: Progress, commands: list[ev.Command], total: int) -> Flow:
        left, model, usage = set(ranks), b"", {}
        while left:
            event = yield commands
            commands = []
            if not isinstance(event, ev.Received):
                continue
            if event.message["is"] == "finished":
                left.discard(event.rank)
                usage[event.rank] = codec.decode(RankUsage, event.message["usage"])
                model = event.blob or model
            else:
                commands = progress.take(event)
        order = tuple(usage[rank] for rank in sorted(usage))
        return [*commands, ev.Finished(order, model, interrupted=progress.done < total)]

    def _next_stop(self, granted: int, total: int, per_epoch: int) -> int:
        """The next step after which something else than a step is due."""
        stops = [total, (granted // per_epoch + 1) * per_epoch]
        if self._settings.checkpoint_every:
            stops.append((granted // self._settings.checkpoint_every + 1) * self._settings.checkpoint_every)
        return min(stops)

    def _orders_at(
        self,
        step: int,
        ranks: tuple[int, ...],
        total: int,
        per_epoch: int,
        has_test: bool,
        progress: Progress,
    ) -> list[ev.Command]:
        commands: list[ev.Command] = []
        ends_epoch = step % per_epoch == 0
        if has_test and (ends_epoch or step == total):
            commands.append(ev.Order(ranks, {"do": "evaluate", "tag": self._next_tag()}))
            progress.pending.append((step, "evaluated", set(ranks)))
        every = self._settings.checkpoint_every
        due = ends_epoch if every is None else bool(every) and step % every == 0
        if due or (step == total and every != 0):
            commands.append(ev.Order(ranks, {"do": "checkpoint", "tag": self._next_tag()}))
            progress.pending.append((step, "checkpoint", set(ranks)))
        return commands

    def _next_tag(self) -> int:
        self._gathers += 1
        return self._gathers

    # Asking

    def _ask(
        self,
        ranks: tuple[int, ...],
        message: dict[str, Any],
        reply: str,
        blob: bytes = b"",
        before: list[ev.Command] | None = None,
    ) -> Flow:
        """Send one order to ranks and return each one's reply."""
        self._postmortem.ordered(message["do"])
        return (yield from self._collect(ranks, [*(before or []), ev.Order(ranks, message, blob)], reply))

    def _collect(self, ranks: tuple[int, ...], commands: list[Any], reply: str) -> Flow:
        replies: dict[int, dict[str, Any]] = {}
        while len(replies) < len(ranks):
            event = yield commands
            commands = []
            if isinstance(event, ev.Interrupted):
                raise KeyboardInterrupt
            if isinstance(event, ev.Received) and event.message["is"] == reply:
                replies[event.rank] = event.message
        return replies
