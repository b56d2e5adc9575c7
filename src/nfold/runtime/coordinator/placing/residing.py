"""What a member is told of its place among all data: which numbers its samples have, where others are kept. Pure."""

from collections.abc import Sequence
from typing import Any

from nfold.core.job import JobSettings
from nfold.core.residency import NodeData, num_begun, spans_of


def reside_order(
    settings: JobSettings, key: str, members: Sequence[NodeData], number: int, sample_bytes: float
) -> dict[str, Any]:
    """Return the order that tells a member so.

    Args:
        settings: of the job.
        key: names the data.
        members: all that the run has had.
        number: of the member.
        sample_bytes: the mean of a sample.
    """
    spans = spans_of(members)
    return {
        "do": "reside",
        "total": spans[-1][1],
        **brought_order(members),
        "key": key,
        "steps": settings.steps,
        "measure": settings.place not in (None, "nothing"),
        "folder": settings.samples_folder,
        "is_kept": settings.keeps_samples,
        "first": spans[number][0],
        "most_bytes": _room_bytes(settings, members[number], sample_bytes),
    }


def brought_order(members: Sequence[NodeData]) -> dict[str, Any]:
    """Return the part of orders to move that says which numbers mean what nodes have brought, and not what began."""
    lived = zip(members, spans_of(members), strict=True)
    brought = [[*span, member.digest] for member, span in lived if member.is_brought]
    return {"num_begun": num_begun(members), "brought": brought}


def _room_bytes(settings: JobSettings, member: NodeData, sample_bytes: float) -> int | None:
    """Return the bytes that samples from elsewhere may take on a node; None: as many as its disk has room for."""
    declared = settings.box or settings.cluster  # of a box, those that have come later too
    nodes = declared.nodes if declared else ()
    storage_bytes = next((node.storage_bytes for node in nodes if node.name == member.node), None)
    return None if storage_bytes is None else max(0, int(storage_bytes - member.num_samples * sample_bytes))
