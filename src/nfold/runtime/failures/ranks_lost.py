"""What ends a generation whose ranks are lost, where the others can go on without them."""

from nfold.errors import NfoldError


class RanksLost(NfoldError):
    """Some ranks are lost, and those that are left have their numbers already."""

    def __init__(self, hosts: tuple[str, ...]) -> None:
        """Args:
        hosts: of those that are lost.
        """
        super().__init__(f"{', '.join(hosts)} lost")
        self.hosts = hosts
