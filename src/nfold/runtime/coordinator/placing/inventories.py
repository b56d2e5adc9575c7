"""What ranks told of the data that live on their nodes, and what cannot be of it. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from nfold.core import codec
from nfold.core.job import Begun, JobSettings
from nfold.core.residency import NodeData, PlacedData
from nfold.core.text.units import count
from nfold.errors import PlanError, ProgramError
from nfold.planning.residency.node_inventory import Inventory, refuse_claimed_twice

Ready = Mapping[str, Any]


def check_settings(settings: JobSettings) -> None:
    """Refuse ranks that could not each train on what lives on a node of their own.

    Raises:
        PlanError: several ranks share a node, or some serve and hold nothing.
    """
    if settings.servers:
        raise PlanError(
            "ranks train on what lives on their nodes, and dedicated servers would train on nothing. "
            f"Leave out --servers {settings.servers}."
        )
    nodes = settings.nodes or ("this machine",) * settings.workers
    shared = next((node for node in nodes if nodes.count(node) > 1), None)
    if shared is not None:
        raise PlanError(
            f"{count(nodes.count(shared), 'rank')} on {shared} cannot each train on what lives on its node: that is "
            f"theirs together. Use one rank for each node, here {count(len(set(nodes)), 'rank')}."
        )


def check_begun(begun: Begun | None, *, has_own_data: bool) -> None:
    """Refuse to go on with data that live on nodes where the run had them everywhere, or the other way round.

    Raises:
        PlanError: its samples would be visited in another order, without a word.
    """
    if begun is None or (begun.placed is not None) == has_own_data:
        return
    if has_own_data:
        raise PlanError(
            "the run was begun with data that all ranks have, and now they live on nodes: its samples would come in "
            "another order. Leave out --place, and nfold.local_data of the program, or begin a new run."
        )
    raise PlanError(
        "the run was begun with data that live on nodes, and nobody says any more which samples live where. Let the "
        "program or the emulated cluster say so as when it began, or begin a new run."
    )


def inventories_of(nodes: Sequence[str], ready: Sequence[Ready]) -> dict[str, Inventory]:
    """Return what lives on each node, by its name.

    Args:
        nodes: by rank.
        ready: what each rank told.

    Raises:
        ProgramError: nothing lives anywhere.
        ClusterError: two nodes claim one sample.
    """
    told = (codec.decode(Inventory, each["inventory"]) for each in ready)
    found = dict(zip(nodes, told, strict=True))
    if not any(each.num_samples for each in found.values()):
        raise ProgramError(f"no sample lives on {', '.join(nodes)}. Check what train_data() looks for there.")
    refuse_claimed_twice(found)
    return found


def mean_bytes(inventories: Iterable[Inventory]) -> float:
    """Return the mean bytes of a sample, when it is sent; of none that could be sent, 1."""
    told = [(each.num_samples, each.sample_bytes) for each in inventories if each.sample_bytes]
    return max(1.0, sum(held * each for held, each in told) / max(1, sum(held for held, _ in told)))


def members_of(inventories: Mapping[str, Inventory]) -> tuple[NodeData, ...]:
    """Return what is kept of each node, in their order."""
    return tuple(
        NodeData(node=node, num_samples=each.num_samples, num_pinned=each.num_pinned, digest=each.digest)
        for node, each in inventories.items()
    )


def why_pinned(inventories: Mapping[str, Inventory]) -> list[str]:
    """Return notes on nodes whose samples cannot be sent, although nobody has pinned them."""
    return [
        f"note: what lives on {node} stays there: {each.why_pinned}"
        for node, each in inventories.items()
        if each.why_pinned
    ]


def as_called(kept: PlacedData | None, found: Sequence[NodeData]) -> tuple[NodeData, ...]:
    """Return the one node of a run that names none, called as when the run began: its host may have another name.

    Args:
        kept: of the run so far; None: it begins.
        found: on the node.
    """
    was = kept.members if kept is not None else ()
    if len(was) == len(found) == 1 and was[0].digest == found[0].digest:
        return (replace(found[0], node=was[0].node),)
    return tuple(found)


def numbered(
    kept: PlacedData | None, found: Sequence[NodeData], *, may_bring: bool = False
) -> tuple[tuple[NodeData, ...], tuple[int, ...]]:
    """Return all members that a run has had, by number, and the number of each rank's.

    Args:
        kept: of the run so far; None: it begins.
        found: on each rank's node now.
        may_bring: whether a node that the run does not know may have samples: it trains already.

    Raises:
        ProgramError: a node holds other data than when it came to the run, or brings new ones.
    """
    if kept is None:
        return tuple(found), tuple(range(len(found)))
    members = list(kept.members)
    numbers = []
    for each in found:
        number = next((index for index, member in enumerate(members) if member.node == each.node), len(members))
        if number == len(members):
            if not may_bring:
                _check_new(each)
            members.append(replace(each, is_brought=each.num_samples > 0))
        elif replace(members[number], num_pinned=each.num_pinned, is_brought=False) != each:
            _refuse_changed(members[number], each)
        else:
            members[number] = replace(members[number], num_pinned=each.num_pinned)
        numbers.append(number)
    return tuple(members), tuple(numbers)


def _check_new(found: NodeData) -> None:
    if found.num_samples:
        raise ProgramError(
            f"{found.node} was not in the run when it began, and holds {count(found.num_samples, 'sample')}: the run "
            "would be trained on other data. Let it join while the run trains, hold none, or begin a new run."
        )


def _refuse_changed(was: NodeData, found: NodeData) -> None:
    others = f"{count(was.num_samples, 'sample')}, and holds {found.num_samples}"
    if was.num_samples == found.num_samples:
        others = (
            f"{count(was.num_samples, 'sample')}, and holds as many others, by their names, sizes, times or contents"
        )
    raise ProgramError(f"the run was begun when {was.node} held {others} now. Put them back, or begin a new run.")
