"""All that may answer a question: estimated, simulated where it may win, and sorted into a winner and why others lost.

A link cannot carry its bytes, and a rank cannot compute its cells, in less than so many seconds. What needs longer by
that alone than another proposal takes cannot win and keeps its estimate; the choice is the same as if all were
simulated. On many ranks the messages of a step are too many to be simulated, and nothing is. What seems too slow to win
and has the fewest bytes, or needs the least memory, keeps its estimate as well: bytes and memory of it are exact.

A proposal that does not fit the memory is looked at again with fewer chunks begun at once, as few as it needs.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from nfold.core.plan import Rejected, Unpredicted
from nfold.errors import PlanError
from nfold.planning.choosing.candidates import Candidate
from nfold.planning.choosing.comparing_candidates import TIE, comparison, undominated
from nfold.planning.choosing.proposals import Answers
from nfold.planning.choosing.strategies import CONTAINED, Strategy
from nfold.planning.costs.memory_objection import lacking_bytes, memory_objection
from nfold.planning.inputs.facts import Proposal
from nfold.planning.operator_parts.splitting import split_facts
from nfold.planning.scheduling.windows import busy_windows, narrower

MANY_RANKS = 33
"""From so many on, proposals are estimated: messages grow with the square of the ranks, and each simulation of 64
servers takes seconds."""
NOTHING_PROPOSED = "it finds no division that gives every worker something to do: the slowest would get no chunk"


class NothingRuns(PlanError):
    """No strategy can be used.

    Attributes:
        rejected: why not, of each.
    """

    def __init__(self, text: str, rejected: tuple[Rejected, ...]) -> None:
        super().__init__(text)
        self.rejected = rejected


@dataclass(frozen=True, kw_only=True, slots=True)
class _Estimated:
    """A proposal before it is simulated."""

    index: int
    """In the order of its strategy, which proposes the simplest first."""
    candidate: Candidate
    least_step_s: float
    lacking_bytes: int
    """How much memory it seems to lack; 0 where it seems to fit."""

    @property
    def promise(self) -> tuple[int, float, int]:
        """Smaller is more promising: the fastest that fits, then what lacks the least."""
        return self.lacking_bytes, self.candidate.predicted.step_s, self.index


@dataclass(slots=True)
class _Line:
    """The proposals of a strategy: those that wait, the most promising first, and what became of the others."""

    strategy: str
    most: int
    waiting: list[_Estimated]
    fitting: dict[int, Candidate] = field(default_factory=dict)
    too_large: list[Candidate] = field(default_factory=list)

    @property
    def is_open(self) -> bool:
        """Whether one more is looked at."""
        return bool(self.waiting) and len(self.fitting) < self.most

    @property
    def best(self) -> Candidate | None:
        """The fastest that fits, if there is one."""
        return _fastest([self.fitting[index] for index in sorted(self.fitting)]) if self.fitting else None

    def give_up(self) -> None:
        """Keep the estimates of all that wait: what seems to lack less memory does not fit either."""
        self.too_large += [each.candidate for each in self.waiting]
        self.waiting.clear()


class Portfolio:
    """The candidates of a question that fit the memory, and the reasons why the others do not."""

    def __init__(self, answers: Answers, among: Sequence[Strategy]) -> None:
        self._answers, self._facts, self._among = answers, answers.facts, among
        self._lines: list[_Line] = []
        self._fitting: list[Candidate] = []
        self._best: list[Candidate] = []
        self.rejected: list[Rejected] = []

    def add(self, strategy: Strategy, most: int) -> None:
        """Estimate all proposals of a strategy, of which so many that fit the memory become candidates.

        So do as many of each strategy that it contains, so that it is never predicted slower than one of those.
        """
        parts = [each for each in CONTAINED.get(strategy.name, ()) if each.accepts(self._facts) is None]
        for each in (*parts, strategy):
            proposals = enumerate(self._answers.proposals(each))
            estimated = (self._estimate(index, proposal, strategy.name) for index, proposal in proposals)
            self._lines.append(_Line(strategy.name, most, sorted(estimated, key=lambda each: each.promise)))

    def _estimate(self, index: int, proposal: Proposal, strategy: str) -> _Estimated:
        wide = self._looked_at(index, proposal, strategy)
        others = self._narrower(proposal) if wide.lacking_bytes else []
        return self._widest_that_fits(index, others, strategy) if others else wide

    def _widest_that_fits(self, index: int, proposals: list[Proposal], strategy: str) -> _Estimated:
        """Return the first of ever narrower proposals that fits; the last, which needs the least, where none does."""
        narrowest = self._looked_at(index, proposals[-1], strategy)
        if narrowest.lacking_bytes:
            return narrowest
        tried = (self._looked_at(index, each, strategy) for each in proposals)
        return next(each for each in tried if not each.lacking_bytes)

    def _looked_at(self, index: int, proposal: Proposal, strategy: str) -> _Estimated:
        candidate, least_step_s = self._answers.estimated(strategy, proposal)
        lacking = self._lacking_bytes(candidate)
        return _Estimated(index=index, candidate=candidate, least_step_s=least_step_s, lacking_bytes=lacking)

    def _narrower(self, proposal: Proposal) -> list[Proposal]:
        """Return a proposal with ever fewer chunks begun at once; nothing where that makes no difference."""
        if proposal.asynchrony is not None:
            return []
        placement = proposal.placement
        busy = busy_windows(split_facts(self._facts, proposal.splits).graph, placement)
        most = tuple(min(busy[rank], placement.num_chunks) for rank in range(placement.world_size))
        return [replace(proposal, windows=windows) for windows in narrower(proposal.windows or most)]

    def _lacking_bytes(self, candidate: Candidate) -> int:
        facts = split_facts(self._facts, candidate.proposal.splits)
        return lacking_bytes(facts, candidate.proposal, candidate.predicted)

    def settle(self, chosen: Strategy | None) -> None:
        """Simulate what may win, the most promising of all strategies first; the others keep their estimates.

        Of what seems not to fit, the nearest is simulated: where nothing fits, that is enough to say so.
        """
        best_s = math.inf
        while lines := [line for line in self._lines if line.is_open]:
            wanted = [line for line in lines if chosen is not None and line.strategy == chosen.name] or lines
            line = min(wanted, key=lambda each: each.waiting[0].promise)
            first = line.waiting[0]
            candidate = self._settled(first, best_s)
            lacks = self._lacking_bytes(candidate) > 0
            others = self._narrower(candidate.proposal) if lacks and not first.lacking_bytes else []
            if others:  # it seemed to fit, and the simulator's order keeps a little more
                line.waiting[0] = self._widest_that_fits(first.index, others, line.strategy)
                continue
            del line.waiting[0]
            if lacks:
                line.too_large.append(candidate)
                if first.lacking_bytes:
                    line.give_up()
                continue
            line.fitting[first.index] = candidate
            if chosen is None or line.strategy == chosen.name:
                best_s = min(best_s, candidate.predicted.step_s)
        self._keep_undominated(best_s)
        self._note()

    def _keep_undominated(self, best_s: float) -> None:
        """Keep what was not looked at for being slow, and is beaten by nothing in time, bytes and memory at once."""
        waiting = [(line, each) for line in self._lines for each in line.waiting if not each.lacking_bytes]
        known = [candidate.predicted for line in self._lines for candidate in line.fitting.values()]
        flags = undominated([*known, *(each.candidate.predicted for _, each in waiting)])
        for (line, each), is_undominated in zip(waiting, flags[len(known) :], strict=True):
            seems_best = each.candidate.predicted.step_s <= TIE * best_s
            candidate = self._settled(each, best_s) if is_undominated and seems_best else each.candidate
            if is_undominated and not self._lacking_bytes(candidate):
                line.fitting[each.index] = candidate

    def _settled(self, estimated: _Estimated, best_s: float) -> Candidate:
        """Simulate a candidate that may be faster than the best so far."""
        candidate = estimated.candidate
        proposal = candidate.proposal
        if proposal.asynchrony or proposal.placement.world_size >= MANY_RANKS or estimated.least_step_s > TIE * best_s:
            return candidate
        return self._answers.simulated(candidate)

    def _note(self) -> None:
        """Sort out what fits; of what does not, say of one what it lacks."""
        for name in dict.fromkeys(line.strategy for line in self._lines):
            lines = [line for line in self._lines if line.strategy == name]
            self._fitting += [line.fitting[index] for line in lines for index in sorted(line.fitting)]
            best = [line.best for line in lines if line.best is not None]
            if best:
                self._best.append(min(best, key=lambda candidate: candidate.predicted.step_s))
            too_large = [each for line in lines for each in line.too_large]
            if too_large:
                candidate = self._nearest(too_large, is_any_fitting=bool(best))
                self.rejected.append(_rejected(candidate, self._memory_objection(candidate)))
            elif not best:
                why = self._answers.objections.get(name) or NOTHING_PROPOSED
                self.rejected.append(Rejected(strategy=name, predicted=Unpredicted(), why=why))
        order = [strategy.name for strategy in self._among]
        self.rejected.sort(key=lambda loser: order.index(loser.strategy))

    def _nearest(self, too_large: list[Candidate], *, is_any_fitting: bool) -> Candidate:
        """Return the fastest of those that do not fit; where nothing does, the one that lacks the least."""

        def badness(each: Candidate) -> tuple[int, float]:
            return 0 if is_any_fitting else self._lacking_bytes(each), each.predicted.step_s

        return min(too_large, key=badness)

    def _memory_objection(self, candidate: Candidate) -> str:
        facts = split_facts(self._facts, candidate.proposal.splits)
        return memory_objection(facts, candidate.proposal, candidate.predicted) or ""

    def winner(self, chosen: Strategy | None) -> Candidate:
        """Return the best candidate of the strategy that was asked for, or of all.

        Raises:
            PlanError: the strategy that was asked for cannot be used, or its proposals do not fit the memory.
            NothingRuns: the same holds for every strategy.
        """
        if chosen is not None:
            for candidate in self._best:
                if candidate.strategy == chosen.name:
                    return candidate
            why = next(loser.why for loser in self.rejected if loser.strategy == chosen.name)
            raise PlanError(f"--strategy {chosen.name}: {why}")
        if not self._best:
            reasons = "; ".join(f"{loser.strategy}: {loser.why}" for loser in self.rejected)
            raise NothingRuns(f"no strategy can run here. {reasons}", tuple(self.rejected))
        return min(self._best, key=lambda candidate: candidate.predicted.step_s)

    def best_on(self, workers: int) -> Candidate | None:
        """Return the fastest candidate that gives so many workers something to compute; None: none fits."""
        return min(
            (each for each in self._fitting if len(each.proposal.placement.working) == workers),
            key=lambda each: each.predicted.step_s,
            default=None,
        )

    def is_undominated(self, candidate: Candidate) -> bool:
        """Whether nothing that was kept is as good in time, bytes and memory, and better in one."""
        return undominated([candidate.predicted, *(each.predicted for each in self._fitting)])[0]

    def losers(self, winner: Candidate, *, forced: bool) -> tuple[Rejected, ...]:
        """Return the best of every other strategy, then what else is undominated, then what could not be."""
        best = [candidate for candidate in self._best if candidate is not winner]
        shown = {_figures(candidate) for candidate in (winner, *best)}
        others: list[Candidate] = []
        for candidate in self._fitting:
            if _figures(candidate) not in shown and self.is_undominated(candidate):
                shown.add(_figures(candidate))
                others.append(candidate)
        won = winner.predicted, winner.proposal
        found = [
            _rejected(
                each,
                comparison((each.predicted, each.proposal), won, winner.strategy, forced=forced),
                is_undominated=self.is_undominated(each),
            )
            for each in (*best, *others)
        ]
        return (*found, *self.rejected)


def _fastest(candidates: list[Candidate]) -> Candidate:
    """The first of those that nobody beats: a strategy proposes the simplest first, and 1 % is less than any error."""
    least = min(candidate.predicted.step_s for candidate in candidates)
    return next(candidate for candidate in candidates if candidate.predicted.step_s <= TIE * least)


def _figures(candidate: Candidate) -> tuple[float, int, tuple[int, ...]]:
    predicted = candidate.predicted
    return predicted.step_s, predicted.sent_bytes_per_step, predicted.peak_memory_bytes


def _rejected(candidate: Candidate, why: str, *, is_undominated: bool = False) -> Rejected:
    return Rejected(
        strategy=candidate.strategy,
        chunks=candidate.proposal.placement.num_chunks,
        predicted=candidate.predicted,
        why=why,
        is_undominated=is_undominated,
    )
