"""How long nobody trains for want of hosts: one clock, whatever is waited for meanwhile. Pure."""

from collections.abc import Sequence

from nfold.core.options.host_range import HostRange
from nfold.core.text.units import seconds

BRING = "nfold scale, nfold join, their manager or a fault brings one"
NOBODY_COMES = "nobody can come any more: the host that was waited for has gone"


class HostWait:
    """The time for which those who are left wait for others. It begins anew only once they have trained."""

    def __init__(self, limit_s: float, hosts: HostRange | None) -> None:
        """Args:
        limit_s: how long they wait; 0: nobody ever can come.
        hosts: how many the run asks for.
        """
        self._limit_s, self._hosts = limit_s, hosts
        self._since_s: float | None = None
        self._told = ""

    @property
    def may_wait(self) -> bool:
        """Whether somebody can come, if only a host that has lost its rank."""
        return self._limit_s > 0

    def begin(self, now_s: float, wanted: str, returning: Sequence[str] = ()) -> list[str]:
        """Note that nobody trains; return what to tell the user, once for all that is wanted.

        Args:
            now_s: the time.
            wanted: what is waited for.
            returning: hosts that come by themselves.
        """
        if self._since_s is None:
            self._since_s = now_s
        if self._told == wanted:
            return []
        self._told = wanted
        limit, left_s = seconds(self._limit_s), self._since_s + self._limit_s - now_s
        most = limit if left_s >= self._limit_s else f"{seconds(max(0.0, left_s))} more of {limit}"
        bring = f"{', '.join(returning)} comes again" if returning else BRING
        return [f"waiting for {wanted} (--nodes {self._hosts}), {most} at most: {bring}"]

    def end(self) -> None:
        """Note that ranks train."""
        self._since_s, self._told = None, ""

    def is_over(self, now_s: float) -> bool:
        """Whether nobody has come for long enough."""
        return self._since_s is not None and now_s - self._since_s >= self._limit_s

    @property
    def in_vain(self) -> str:
        """What to tell the user when it is over."""
        return f"nobody has come within {seconds(self._limit_s)} (--hosts-within)"
