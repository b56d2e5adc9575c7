"""What ends a generation whose ranks are lost, where the others can go on without them."""

from collections.abc import Sequence

from nfold.errors import NfoldError
from nfold.runtime.control import events as ev


class RanksLost(NfoldError):
    """Some ranks are lost, and those that are left have their numbers already."""

    def __init__(
        self,
        hosts: tuple[str, ...],
        members: tuple[int, ...] = (),
        late: Sequence[ev.Received] = (),
        left: tuple[str, ...] = (),
    ) -> None:
        """Args:
        hosts: of those that are lost.
        members: by the rank that each had before.
        late: what ranks of then told of their training while all had their say about its end.
        left: hosts of those that were just leaving.
        """
        super().__init__(f"{', '.join(hosts)} lost")
        self.hosts, self.members, self.late, self.left = hosts, members, tuple(late), left
