"""What `nfold scale` asks of a run: whether it may have so many hosts, and who brings or gives back the difference."""

from typing import Protocol

from nfold.core.options.host_range import HostRange
from nfold.core.text.units import count

ASKED_FOR = "asked for by nfold scale"
GIVEN_BACK = "given back by nfold scale"
"""Why hosts come and leave."""


class Places(Protocol):
    """Where the hosts of a run are."""

    def num_taken(self) -> int:
        """Return how many hosts are there or asked for."""
        ...

    def grow(self, more: int) -> str:
        """Ask for more hosts; return what to tell."""
        ...

    def shrink(self, fewer: int) -> str:
        """Give hosts back, those first that came last; return what to tell."""
        ...


def scaled(asked: str, hosts: HostRange, places: Places) -> str:
    """Do what `N`, `+N` or `-N` asks for, as far as it may be; return what to tell."""
    now = places.num_taken()
    wanted = now + int(asked) if asked[0] in "+-" else int(asked)
    if wanted > hosts.most or (wanted < hosts.least and wanted <= now):
        return (
            f"refused: {count(wanted, 'host')} would be outside of --nodes {hosts}, which allows "
            f"{hosts.least} to {hosts.most}; there are {now}"
        )
    if wanted > now:
        return places.grow(wanted - now)
    return places.shrink(now - wanted) if wanted < now else f"there are {now} already"


def told_to_leave(names: list[str]) -> str:
    """Say that hosts are to leave."""
    return f"{', '.join(names)} to leave after the step under way"
