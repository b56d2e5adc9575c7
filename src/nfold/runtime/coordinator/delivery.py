"""What ranks give as a run ends: the final model, and what each has used. Pure."""

from typing import TYPE_CHECKING

from nfold.core import codec
from nfold.core.trace import RankUsage
from nfold.runtime.control import events as ev

if TYPE_CHECKING:
    from nfold.runtime.control.spool import Arrived


class Delivery:
    """What has come so far.

    Attributes:
        model: its file; None: it has not come.
        staleness: of an asynchronous run: gradients by how many updates old they were.
        gone: ranks that have left after they had delivered.
    """

    def __init__(self) -> None:
        self.model: Arrived | None = None
        self.staleness: dict[str, int] = {}
        self.gone: set[int] = set()
        self._usage: dict[int, RankUsage] = {}

    @property
    def usage(self) -> tuple[RankUsage, ...]:
        """What ranks have used, by rank."""
        return tuple(self._usage[rank] for rank in sorted(self._usage))

    def missing(self, ranks: tuple[int, ...]) -> bool:
        """Whether one of some ranks has delivered nothing yet."""
        return not self._usage.keys() >= set(ranks)

    def take(self, event: ev.Received) -> None:
        """Take in what a rank tells."""
        if event.message["is"] == "delivered":
            self._usage[event.rank] = codec.decode(RankUsage, event.message["usage"])
            self.model = event.file or self.model
            self.staleness = event.message["staleness"] or self.staleness
        elif event.message["is"] == "finished":
            self.gone.add(event.rank)

    def drop(self) -> None:
        """Remove the model: another one follows."""
        if self.model is not None:
            self.model.drop()
