"""Why hosts came and went, and when those that came later were started: for the ledger, and for no decision. Pure."""

from dataclasses import replace

from nfold.core.members import Turnover

NO_WORK = "the plan has no work for it"


class Histories:
    """What is known of hosts, by their names; no two of a job are equal."""

    def __init__(self) -> None:
        self._came: dict[str, str] = {}
        self._gone: dict[str, str] = {}
        self._launched_at: dict[str, float] = {}

    def came(self, host: str, why: str, launched_at: float | None) -> None:
        """Note who brought a host, and when its agent was started, in seconds since 1970; None: not known."""
        self._came[host] = why
        if launched_at is not None:
            self._launched_at[host] = launched_at

    def gone(self, host: str, why: str) -> None:
        """Note why a host goes that has a rank; the first reason stays, if there is one, until it is told."""
        self._gone[host] = self._gone.get(host) or why

    def told(self, turnover: Turnover) -> Turnover:
        """Return a turnover with what is known of its hosts; a host that was killed may be back by then."""
        why = {host: self._came.get(host, "") for host in turnover.joined}
        why |= {host: self._gone.pop(host, NO_WORK) for host in turnover.left}
        why |= {host: self._gone.pop(host, "") for host in turnover.lost}
        launched_at = {host: self._launched_at[host] for host in turnover.joined if host in self._launched_at}
        return replace(turnover, why=why, launched_at=launched_at)
