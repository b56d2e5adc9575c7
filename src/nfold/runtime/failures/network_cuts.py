"""Finds which ranks the network has cut off from each other, from whom each of them does not hear. Pure.

rank 0: "nothing from 2 for 11 s"      rank 1: "nothing from 2 for 10 s"      rank 2: "nothing from 0, 1 for 11 s"
-->  rank 2 and ranks 0 and 1 have heard nothing from each other
"""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from nfold.runtime.failures.silent_ranks import Patience

QUIET_S = 6.0
"""Machines that reach each other are heard every two seconds: longer silence belongs to a cut others show."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NetworkCut:
    """A rank, and the others that do not hear it and that it does not hear."""

    rank: int
    others: tuple[int, ...]
    silent_s: float
    """Of the pair that has been silent longest."""

    @property
    def pairs(self) -> frozenset[frozenset[int]]:
        """The pairs of ranks that do not hear each other."""
        return frozenset(frozenset((self.rank, other)) for other in self.others)


@dataclass(frozen=True, kw_only=True, slots=True)
class CutChanges:
    """The cuts that are new, healed or too long since the last look."""

    begun: tuple[NetworkCut, ...] = ()
    healed: tuple[NetworkCut, ...] = ()
    lost: tuple[NetworkCut, ...] = ()
    """Cuts whose end is waited for no longer."""


class Cuts:
    """Notices cuts of the network between the ranks of one job."""

    def __init__(self, patience: Patience) -> None:
        self._patience = patience
        self._silent_s: dict[int, Mapping[int, float]] = {}
        self._told: tuple[NetworkCut, ...] = ()

    def hear(self, rank: int, silent_s: Mapping[int, float]) -> None:
        """Note the seconds for which a rank has not heard others, as it reports."""
        self._silent_s[rank] = silent_s

    def look(self, ranks: Collection[int], unheard: Collection[int] = ()) -> CutChanges:
        """Return what is new about the network between some ranks.

        Args:
            ranks: that are heard.
            unheard: others that are waited for: nobody can tell now whether they hear each other.
        """
        pairs = self._pairs(ranks)
        told = [cut for each in self._told if (cut := _within(each, {*ranks, *unheard}))]
        known = frozenset[frozenset[int]]().union(*(cut.pairs for cut in told))
        begun = tuple(
            cut
            for cut in explained({pair: seconds for pair, seconds in pairs.items() if pair not in known})
            if cut.silent_s >= self._patience.noticed_s and not any(_belongs(cut, each, pairs) for each in told)
        )
        healed = tuple(cut for cut in told if not cut.pairs & pairs.keys() and {cut.rank, *cut.others} <= set(ranks))
        self._told = (*(cut for cut in told if cut not in healed), *begun)
        lost = tuple(cut for cut in explained(pairs) if cut.silent_s >= self._patience.lost_s)
        return CutChanges(begun=begun, healed=healed, lost=lost)

    def _pairs(self, ranks: Collection[int]) -> dict[frozenset[int], float]:
        pairs: dict[frozenset[int], float] = {}
        for rank in ranks:
            for peer, seconds in self._silent_s.get(rank, {}).items():
                if peer in ranks:
                    pair = frozenset((rank, peer))
                    pairs[pair] = max(seconds, pairs.get(pair, 0.0))
        return pairs


def _within(cut: NetworkCut, ranks: Collection[int]) -> NetworkCut | None:
    """Return a cut without ranks that are gone; None where nothing is left of it."""
    others = tuple(other for other in cut.others if other in ranks)
    return replace(cut, others=others) if others and cut.rank in ranks else None


def _belongs(new: NetworkCut, told: NetworkCut, pairs: Mapping[frozenset[int], float]) -> bool:
    """Return whether a cut is the rest of one that was told: ranks report at times of their own."""
    silent_s = [pairs[pair] for pair in told.pairs if pair in pairs]
    together = any(abs(new.silent_s - seconds) < QUIET_S for seconds in silent_s)
    is_pair = len(told.others) == 1  # of which each may be who is cut off
    ends = (told.rank, *told.others) if is_pair else (told.rank,)
    return together and any(all(end in pair for pair in new.pairs) for end in ends)


def explained(pairs: Mapping[frozenset[int], float], rather: Collection[int] = ()) -> list[NetworkCut]:
    """Explain pairs by as few ranks as possible: again and again take the one with most silent partners.

    Args:
        pairs: of ranks, and for how many seconds they have not heard each other.
        rather: of ranks with as many partners, one of these.
    """
    cuts, left = [], dict(pairs)
    while left:
        counts = Counter(rank for pair in left for rank in pair)
        rank = max(counts, key=lambda each: (counts[each], each in rather, each))
        mine = {pair: left.pop(pair) for pair in [pair for pair in left if rank in pair]}
        others = tuple(sorted(other for pair in mine for other in pair if other != rank))
        cuts.append(NetworkCut(rank=rank, others=others, silent_s=max(mine.values())))
    return cuts
