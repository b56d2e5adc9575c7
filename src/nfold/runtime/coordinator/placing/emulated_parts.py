"""Which of a data set's samples live on each node of an emulated cluster: node after node the next so many. Pure."""

from typing import Any

from nfold.core.cluster import Cluster
from nfold.core.job import JobSettings
from nfold.core.residency import PlacedData, spans_of
from nfold.core.text.units import count
from nfold.errors import ProgramError


def parts_of(settings: JobSettings) -> list[dict[str, Any] | None]:
    """Return, by rank, what lives on its node; None: what the program says of it, or all data everywhere.

    Raises:
        ProgramError: a run goes on, and a node holds other samples than when it began.
    """
    begun = settings.begun.placed if settings.begun else None
    box = _shared_out(settings)
    if begun is None or box is None:
        return [part_of(settings, name) for name in settings.nodes or ("",) * settings.world_size]
    if settings.hosts is not None or _has_come_and_gone(begun, box):
        return [part_of(settings, name) for name in settings.nodes]
    total = spans_of(begun.members)[-1][1]  # of which nodes that hold none any more may have left the file
    firsts = [_first_in(begun, name, _number_on(box, name)) for name in settings.nodes]
    return [_part(box, name, first, total) for name, first in zip(settings.nodes, firsts, strict=True)]


def part_of(settings: JobSettings, name: str) -> dict[str, Any] | None:
    """Return what lives on a node, as its file says; None: as `parts_of`.

    Args:
        settings: of the job.
        name: of the node, which may have come while others train.
    """
    box = _shared_out(settings)
    if box is None:
        return None
    counts = [node.num_samples or 0 for node in box.nodes]
    place = [node.name for node in box.nodes].index(name)
    return _part(box, name, sum(counts[:place]), sum(counts))


def _shared_out(settings: JobSettings) -> Cluster | None:
    """Return the emulated cluster whose file says which samples live where; None: there is none."""
    box = settings.box
    if settings.place is None or box is None or not any(node.num_samples for node in box.nodes):
        return None
    return box


def _has_come_and_gone(begun: PlacedData, box: Cluster) -> bool:
    """Whether nodes may have come to a run in another order than that of the file, by which samples are shared out."""
    total = sum(node.num_samples or 0 for node in box.nodes)
    return total > spans_of(begun.members)[-1][1] or any(member.is_brought for member in begun.members)


def _part(box: Cluster, name: str, first: int, total: int) -> dict[str, Any]:
    return {"first": first, "count": _number_on(box, name), "total": total, "pinned": box.node(name).num_pinned}


def _number_on(box: Cluster, name: str) -> int:
    return box.node(name).num_samples or 0


def _first_in(begun: PlacedData, name: str, number: int) -> int:
    """Return the number of a node's first sample, that it had when the run began."""
    held = {member.node: span for member, span in zip(begun.members, spans_of(begun.members), strict=True)}
    first, end = held.get(name, (0, 0))
    if end - first != number:
        raise ProgramError(
            f"the run was begun when {name} held {count(end - first, 'sample')}, and the emulated cluster gives it "
            f"{number}. Which samples live where is part of a run: give the node as many as it had."
        )
    return first
