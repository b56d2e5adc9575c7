"""A state of the training that members hold in memory. Pure."""

from collections.abc import Collection
from dataclasses import dataclass

from nfold.runtime.coordinator.states.holdings import Holding, Shared, share_out


@dataclass(frozen=True, slots=True)
class KeptState:
    """A state that members hold in memory."""

    generation: int
    """In which it was taken."""
    step: int
    header: bytes
    """Of the file that it would be."""
    whole: tuple[Holding, ...]
    """What was held when it was taken."""
    here: tuple[Holding, ...]
    """What is held now."""
    is_committed: bool = False
    """Whether it is the state before the step that a loss has ended: no step is lost."""

    def shared(self, members: Collection[int]) -> list[Shared] | None:
        """Return all elements with those of some members that have them; None: some are lost without others."""
        return share_out(self.whole, [each for each in self.here if each.member in members])
