"""Which of a data set's samples live on each node of an emulated cluster: node after node the next so many. Pure."""

from typing import Any

from nfold.core.job import JobSettings
from nfold.core.residency import PlacedData, spans_of
from nfold.core.text.units import count
from nfold.errors import ProgramError


def parts_of(settings: JobSettings) -> list[dict[str, Any] | None]:
    """Return, by rank, what lives on its node; None: what the program says of it, or all data everywhere.

    Raises:
        ProgramError: a run goes on, and a node holds other samples than when it began.
    """
    cluster = settings.cluster
    if settings.place is None or cluster is None or not cluster.is_emulated:
        return [None] * settings.world_size
    nodes = [cluster.node(name) for name in settings.nodes]
    if not any(node.num_samples for node in nodes):
        return [None] * settings.world_size
    begun = settings.begun.placed if settings.begun else None
    counts = [node.num_samples or 0 for node in nodes]
    firsts = [sum(counts[:rank]) for rank in range(len(nodes))]
    total = sum(counts)
    if begun is not None:
        firsts = [_first_in(begun, node.name, number) for node, number in zip(nodes, counts, strict=True)]
        total = spans_of(begun.members)[-1][1]
    return [
        {"first": first, "count": number, "total": total, "pinned": node.num_pinned}
        for node, first, number in zip(nodes, firsts, counts, strict=True)
    ]


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
