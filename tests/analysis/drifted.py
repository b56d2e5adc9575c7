"""Asynchronous runs with a cause put into them: the plan is played on the true cluster, and written as if measured.

As real ranks note it: a message begins to come with its header, and has left when the kernel took its last bytes.
"""

from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from statistics import fmean

from injected import KERNEL_BYTES, MBIT, NUM_STEPS, Injected

from nfold.analysis.measured.measured_facts import MeasuredFacts, gather
from nfold.analysis.reporting.resimulation import Resimulated, simulate_as_it_was
from nfold.analysis.reporting.run_report import Result, report
from nfold.core.cluster import Cluster
from nfold.core.plan import Plan
from nfold.core.report import Report
from nfold.core.trace import Span, StepParts, StepTrace, Trace
from nfold.planning.asynchronous.asynchronous_simulation import COUNTED, Question, SimulatedRun, _World, drift
from nfold.planning.asynchronous.staleness import NO_TICKET, Answer, Apply, Pushed
from nfold.planning.choosing.candidates import estimate_proposal
from nfold.planning.choosing.search import to_plan
from nfold.planning.choosing.strategies import named
from nfold.planning.inputs.facts import Facts as Known

TRACED = range(COUNTED[0], COUNTED[0] + 8)


@dataclass(frozen=True, kw_only=True)
class Drifted(Injected):
    """A run of `ps-async`, or of `ssp` where staleness is bounded."""

    bound: int | None = None

    def facts(self) -> MeasuredFacts:
        """What the report is drawn from."""
        known, planned = self._known_and_planned()
        return gather(planned, self._played(planned), known.cluster, 2)

    def report(self) -> Report:
        known, planned = self._known_and_planned()
        return report(planned, self._played(planned), known.cluster, Result(program="my.py"), question=known, skip=2)

    def again(self) -> Resimulated:
        return simulate_as_it_was(self.facts(), self._known_and_planned()[0])

    def true_drift(self) -> SimulatedRun:
        """What a run of this plan is, simulated from nothing on the cluster as it is."""
        return drift(self._true_question(self._known_and_planned()[1]))

    def _known_and_planned(self) -> tuple[Known, Plan]:
        known = self._question(self._cluster(self.links, {}, self.probe_error))
        return known, self._plan(known)

    def _question(self, cluster: Cluster) -> Known:
        return replace(super()._question(cluster), staleness=self.bound)

    def _plan(self, question: Known) -> Plan:
        proposal = next(iter(named(self.strategy).propose(question)))
        return to_plan(question, estimate_proposal(question, self.strategy, proposal)[0])

    def _true_question(self, planned: Plan) -> Question:
        truth = self._cluster({**self.links, **self.degraded}, self.speeds, 0.0)
        profile = self._question(truth).profiles[1]
        return Question(
            workers=self.workers,
            asynchrony=planned.asynchrony,
            cluster=truth,
            nodes=planned.nodes,
            threads=planned.threads,
            owners=next(iter(planned.placement.owners.values())),
            batch_size=self.batch_size,
            reductions=planned.reductions,
            statistics_bytes=0,
            compute_s=lambda rank, size: sum(profile.whole_s(size)),
            load_s_per_sample=0.0,
            load_wait=0.0,
            update_s=self.update_s if self.server_update_s is None else self.server_update_s,
        )

    def _played(self, planned: Plan) -> Trace:
        world = _Noting(self._true_question(planned), KERNEL_BYTES / (self.mbit * MBIT))
        played = world.play()
        rows = [self._row(world, rank, played.step_s) for rank in range(self.world_size)]
        return Trace(
            parts=tuple(
                replace(row, step=step, samples=_nth_part(row.samples, step, NUM_STEPS))
                for step in range(NUM_STEPS)
                for row in rows
            ),
            steps=tuple(self._step(world, step, played.step_s) for step in TRACED),
            usage=self._usage(),
            staleness={str(age): number for age, number in played.staleness.items()},
            is_asynchronous=True,
        )

    def _row(self, world: "_Noting", rank: int, step_s: float) -> StepParts:
        """A mean step of one rank, but the samples of all steps together: single ones are whole numbers."""
        spans = [span for step in COUNTED for span in world.spans[step] if span.rank == rank]
        busy = {kind: _seconds(spans, kind) / len(COUNTED) for kind in ("F", "UPDATE")}
        compute_s = min(step_s, busy["F"])
        update_s = min(step_s, busy["UPDATE"]) if rank >= self.workers else 0.0
        return StepParts(
            step=0,
            rank=rank,
            step_s=step_s,
            input_s=0.0,
            forward_s=compute_s / 3,
            backward_s=2 * compute_s / 3,
            update_s=update_s,
            communication_s=step_s - compute_s - update_s,
            other_s=0.0,
            sent_bytes=round(fmean(_sent_bytes(world.spans[step], rank) for step in COUNTED)),
            samples=round(NUM_STEPS * sum(world.samples[step, rank] for step in COUNTED) / len(COUNTED)),
        )

    def _step(self, world: "_Noting", step: int, step_s: float) -> StepTrace:
        each = (step_s,) * self.world_size
        return StepTrace(step=step, origin="measured", step_s=each, spans=tuple(world.spans[step]))


class _Noting(_World):
    """Notes what happens, as real ranks do."""

    def __init__(self, question: Question, early_s: float) -> None:
        super().__init__(question)
        self.spans: dict[int, list[Span]] = defaultdict(list)
        self.samples: Counter[tuple[int, int]] = Counter()
        """By step and rank."""
        self._early_s = early_s
        self._said: object = None
        self._left_s: dict[tuple[int, int], float] = {}
        self._begun_s: dict[int, float] = {}
        self._asks: dict[tuple[int, int], tuple[float, float, float]] = {}

    def _to_server(self, worker, server, num_bytes, event):
        self._said = event
        super()._to_server(worker, server, num_bytes, event)

    def _answer(self, server, answer):
        self._said = answer
        super()._answer(server, answer)

    def _send(self, sender, receiver, num_bytes, arrived):
        said, begin_s = self._said, self._timeline.now
        own = sender == receiver

        def came() -> None:
            self._came(said, sender, receiver, 0 if own else num_bytes, begin_s)
            arrived()

        super()._send(sender, receiver, num_bytes, came)

    def _came(self, said, sender, receiver, num_bytes, begin_s):
        latency_s, now = self._latency_s(sender, receiver), self._timeline.now
        gone_s = now - latency_s
        first_s = max(begin_s, self._left_s.get((sender, receiver), 0.0)) + latency_s
        self._left_s[sender, receiver] = gone_s
        left_s = max(begin_s + 1e-5, gone_s - self._early_s)
        if isinstance(said, Pushed) and sender != receiver:
            self._message("gradient", "push", said.ticket, sender, receiver, num_bytes, begin_s, left_s, first_s, now)
        if isinstance(said, Answer):
            if said.ticket != NO_TICKET:
                asked = self._asks[receiver, sender]
                self._message(
                    "ask",
                    "pull",
                    said.ticket,
                    receiver,
                    sender,
                    24 * (num_bytes > 0),
                    asked[0],
                    asked[1],
                    asked[2],
                    asked[2],
                )
                self._message("values", "pull", said.ticket, sender, receiver, num_bytes, begin_s, left_s, first_s, now)
        elif not isinstance(said, Pushed):
            self._asks[sender, receiver] = (begin_s, left_s, now)

    def _message(self, what, purpose, ticket, sender, receiver, num_bytes, begin_s, left_s, first_s, came_s):
        common = {"purpose": purpose, "payload_bytes": num_bytes}
        self._note(ticket, rank=sender, kind="SEND", name=f"{what} {ticket} to {receiver}", peer=receiver,
                   start_s=begin_s, end_s=left_s, **common)  # fmt: skip
        self._note(ticket, rank=receiver, kind="RECV", name=f"{what} {ticket} from {sender}", peer=sender,
                   start_s=min(first_s, came_s), end_s=came_s, **common)  # fmt: skip

    def _compute(self, worker, ticket):
        self._begun_s[worker] = self._timeline.now
        self.samples[ticket // self._question.workers, worker] += sum(self._slice(ticket))
        super()._compute(worker, ticket)

    def _push(self, worker, ticket):
        begin_s, now = self._begun_s[worker], self._timeline.now
        self._note(ticket, rank=worker, kind="F", name=f"F{ticket}", start_s=begin_s, end_s=now)
        super()._push(worker, ticket)

    def _served(self, server, event, commands, begin_s):
        if any(isinstance(command, Apply) for command in commands):
            self._note(event.ticket, rank=server, kind="UPDATE", name=f"update {event.ticket}", start_s=begin_s,
                       end_s=self._timeline.now)  # fmt: skip
        super()._served(server, event, commands, begin_s)

    def _latency_s(self, sender, receiver):
        if sender == receiver:
            return 0.0
        source, target = (self._question.cluster.node(self._question.nodes[rank]) for rank in (sender, receiver))
        return source.uplink.latency_s + target.downlink.latency_s

    def _note(self, ticket, **fields):
        self.spans[ticket // self._question.workers].append(Span(**fields))


def _seconds(spans: list[Span], kind: str) -> float:
    return sum(span.end_s - span.start_s for span in spans if span.kind == kind)


def _nth_part(total: int, index: int, count: int) -> int:
    """All of them together make the total, to the last one."""
    return total * (index + 1) // count - total * index // count


def _sent_bytes(spans: list[Span], rank: int) -> int:
    return sum(span.payload_bytes for span in spans if span.kind == "SEND" and span.rank == rank)
