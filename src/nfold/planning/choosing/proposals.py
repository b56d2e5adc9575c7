"""What strategies propose for one question, and what that costs: worked out once, however many plans ask for it.

Strategies contain each other, and whoever compares them plans each for the same question.
"""

from collections.abc import Iterator
from dataclasses import replace

from nfold.planning.choosing.candidates import Candidate, estimate_proposal, simulate_proposal
from nfold.planning.choosing.exactness import exactly, why_inexact
from nfold.planning.choosing.strategies import CONTAINED, Strategy
from nfold.planning.hypergraph.hypergraph_strategy import ByHypergraph
from nfold.planning.inputs.facts import Facts, Proposal


class Answers:
    """Caches what strategies propose for one question, and what the proposals cost."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self._proposals: dict[str, list[Proposal]] = {}
        """By strategy."""
        self.objections: dict[str, str] = {}
        """By strategy: why what it proposed was left out; empty: nothing was."""
        self._estimated: dict[object, tuple[Candidate, float]] = {}
        self._simulated: dict[object, Candidate] = {}
        """Without schedules and traces, which are large."""

    def proposals(self, strategy: Strategy) -> list[Proposal]:
        """Return the proposals of a strategy."""
        if strategy.name not in self._proposals:
            found = list(self._propose(strategy))
            objections = [why_inexact(self.facts, each) for each in found]
            pairs = zip(found, objections, strict=True)
            self._proposals[strategy.name] = [exactly(self.facts, each) for each, why in pairs if not why]
            self.objections[strategy.name] = next((why for why in objections if why), "")
        return self._proposals[strategy.name]

    def _propose(self, strategy: Strategy) -> Iterator[Proposal]:
        if isinstance(strategy, ByHypergraph):
            return strategy.propose(self.facts, lambda: self._contained(strategy))
        return strategy.propose(self.facts)

    def _contained(self, strategy: Strategy) -> Iterator[tuple[Proposal, float]]:
        """Yield what strategies propose that another one contains, with about how long a step takes."""
        for each in CONTAINED[strategy.name]:
            for proposal in self.proposals(each) if each.accepts(self.facts) is None else ():
                yield proposal, self.estimated(each.name, proposal)[0].predicted.step_s

    def estimated(self, strategy: str, proposal: Proposal) -> tuple[Candidate, float]:
        """Return a proposal's estimate, and the seconds that its step cannot be shorter than."""
        key = _key(proposal)
        if key not in self._estimated:
            self._estimated[key] = estimate_proposal(self.facts, strategy, proposal)
        candidate, least_step_s = self._estimated[key]
        return replace(candidate, strategy=strategy), least_step_s

    def simulated(self, estimated: Candidate) -> Candidate:
        """Return a synchronous candidate with its simulated instead of its estimated step."""
        key = _key(estimated.proposal)
        if key not in self._simulated:
            played = simulate_proposal(self.facts, estimated.strategy, estimated.proposal)
            self._simulated[key] = replace(
                estimated, loads_s=played.loads_s, predicted=played.predicted, paces=played.paces
            )
        known = self._simulated[key]
        return replace(estimated, loads_s=known.loads_s, predicted=known.predicted, paces=known.paces)


def _key(proposal: Proposal) -> object:
    """What makes proposals the same, whichever strategy makes them."""
    placement, splits = proposal.placement, tuple(proposal.splits.items())
    owners = placement.world_size, *placement.owners.values()
    return owners, proposal.reductions, proposal.asynchrony, splits, proposal.windows
