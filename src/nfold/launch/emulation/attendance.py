"""Which nodes of an emulated cluster take part when: some join by a fault, others leave or are killed. Pure."""

from collections.abc import Collection, Iterator, Sequence

from nfold.core.options.host_range import HostRange
from nfold.core.text.units import count
from nfold.errors import PlanError
from nfold.launch.emulation.faults import Fault

_MOVES = ("join", "leave", "kill")
"""Verbs of faults after which another set of nodes takes part."""


def founders(
    nodes: Sequence[str],
    faults: Sequence[Fault],
    hosts: HostRange,
    strangers: Collection[str] = (),
    holders: Sequence[str] = (),
) -> tuple[str, ...]:
    """Return the nodes that a run begins with, in order: those that do not join later, as many as it may have.

    Args:
        nodes: of the cluster, in order.
        faults: in any order.
        hosts: how many may take part.
        strangers: nodes that may only join later.
        holders: nodes that come before the others where not all may begin, the first of them first.
    """
    later = {*_later(faults), *strangers}
    by_need = [name for name in dict.fromkeys((*holders, *nodes)) if name in nodes and name not in later]
    return tuple(name for name in nodes if name in by_need[: hosts.most])


def check_attendance(
    nodes: Sequence[str],
    faults: Sequence[Fault],
    hosts: HostRange,
    strangers: Collection[str] = (),
    holders: Sequence[str] = (),
) -> None:
    """Refuse what cannot happen to nodes that come and go; arguments as `founders` takes them.

    Raises:
        PlanError: too few nodes, or a fault of one that is not there, or is there already.
    """
    first = founders(nodes, faults, hosts, strangers, holders)
    if hosts.most > len(nodes):
        most = len(nodes)
        raise PlanError(
            f"--nodes {hosts}: the cluster has {count(most, 'node')}, and each has one rank. "
            f"Use --nodes {min(hosts.least, most)}:{most}, or add nodes to its file."
        )
    if len(first) < hosts.least:
        lower = f"Use --nodes {len(first)}:{hosts.most}, or let fewer join later." if first else "Let fewer join later."
        later = ", ".join(sorted({*_later(faults), *strangers}))
        why = "come by a fault" if not strangers else "come later: the run does not know their samples"
        raise PlanError(
            f"--nodes {hosts}: {count(len(first), 'node')} would be there at the start, since {later} {why}. {lower}"
        )
    for fault, here in _presence(first, faults):
        if why := _objection(fault, here, hosts):
            told = ", ".join(sorted(here)) or "none"
            raise PlanError(f"--fault {fault.text!r}: {why}; these are: {told}. Name another node or time.")


def refuse_attendance(faults: Sequence[Fault], num_nodes: int) -> None:
    """Refuse faults that let nodes come and go where they may not.

    Raises:
        PlanError: one does.
    """
    for fault in faults:
        if fault.verb in ("join", "leave"):
            raise PlanError(
                f"--fault {fault.text!r}: nodes come and go only in a run that may have more and fewer of them. "
                f"Add --nodes 1:{num_nodes} to nfold train."
            )


def _later(faults: Sequence[Fault]) -> set[str]:
    """Nodes whose first fault of coming and going lets them join."""
    first: dict[str, Fault] = {}
    for fault in _in_order(faults):
        first.setdefault(fault.node, fault)
    return {node for node, fault in first.items() if fault.verb == "join"}


def _presence(first: Sequence[str], faults: Sequence[Fault]) -> Iterator[tuple[Fault, set[str]]]:
    """Yield each fault of coming and going, with the nodes that take part right before it."""
    here = set(first)
    for fault in _in_order(faults):
        yield fault, set(here)
        (here.add if fault.verb == "join" else here.discard)(fault.node)


def _objection(fault: Fault, here: set[str], hosts: HostRange) -> str:
    """Why a fault cannot happen; empty: it can."""
    if fault.verb != "join":
        return "" if fault.node in here else f"{fault.node} is not among the nodes that take part by then"
    if fault.node in here:
        return f"{fault.node} is among the nodes that take part by then"
    if len(here) >= hosts.most:
        return f"the run has all the {count(hosts.most, 'node')} by then that --nodes {hosts} allows"
    return ""


def _in_order(faults: Sequence[Fault]) -> list[Fault]:
    return sorted((fault for fault in faults if fault.verb in _MOVES), key=lambda fault: fault.at_s)
