"""Which placements give one device's bits (`--exact`), and how their gradients are summed.

Whole numbers add up the same in any order. What is left are numbers that torch adds within a chunk: the contributions
of several operators to one gradient. Where all of them are in one segment, its backward adds them as the whole model's
does; two have no order; three or more in several segments have one that a cut would change. A weight's contributions
become whole numbers, so those must all be in one segment.
"""

from collections.abc import Iterator
from dataclasses import replace

from nfold.core.graph import ModelGraph
from nfold.core.placement import Placement
from nfold.planning.inputs.facts import Facts, Proposal
from nfold.planning.scheduling.segments import cut

PLAIN_TYPES = ("float64", "float32", "bfloat16", "float16")
CHUNKS_OF_NODES = "chunks of a batch are what lives on a node, so the result depends on which nodes there are"
_WITHOUT_ORDER = 2
"""Numbers that add up the same in any order."""


def exactly(facts: Facts, proposal: Proposal) -> Proposal:
    """Return a proposal whose gradients are summed as whole numbers, if the facts ask for that."""
    if facts.fraction_bits is None:
        return proposal
    reductions = tuple(replace(each, fraction_bits=facts.fraction_bits) for each in proposal.reductions)
    return replace(proposal, reductions=reductions)


def exact_notes(facts: Facts) -> tuple[str, ...]:
    """Say how a plan adds, if it is exact."""
    if facts.fraction_bits is None:
        return ()
    return (
        f"--exact: gradients are summed as whole numbers of 2^{-facts.fraction_bits}, and each rank computes with one "
        "thread; one device gives the same bits with the same --chunks and --exact",
    )


def program_objection(facts: Facts) -> str:
    """Return why no plan gives the bits of one device; empty: one does, or nobody asks for that."""
    if facts.fraction_bits is None:
        return ""
    if facts.chunk_shares:
        return CHUNKS_OF_NODES
    for each in facts.graph.trained:
        if each.sparse_dims:
            return f"the gradient of {each.name} is sparse, and a sum of whole numbers names no rows"
        if each.dtype not in PLAIN_TYPES:
            return (
                f"{each.name} is of type {each.dtype}, and gradients become whole numbers from {PLAIN_TYPES[1]} alike"
            )
    return ""


def why_inexact(facts: Facts, proposal: Proposal) -> str:
    """Return why a proposal could give other bits than one device; empty: it gives the same, or nobody asks for that.

    O(operators x columns), if ranks share a chunk.
    """
    if facts.fraction_bits is None:
        return ""
    if proposal.asynchrony is not None:
        return "each gradient is applied when it comes, and in which order that is depends on time"
    if proposal.splits:
        name = next(iter(proposal.splits))
        return f"{name} is cut into parts, which kernels compute with other last bits than the whole"
    return _why_cut_inexact(facts.graph, proposal.placement)


def _why_cut_inexact(graph: ModelGraph, placement: Placement) -> str:
    columns = set(zip(*placement.owners.values(), strict=True))
    if all(len(set(column)) == 1 for column in columns):
        return ""
    if graph.inexact_cut:
        return graph.inexact_cut
    for places in _places(graph, placement):
        for parameter in graph.trained:
            if len({places[user] for user in parameter.users}) > 1:
                return f"the operators that use {parameter.name} are cut apart, and its gradient is their sum"
        for tensor in graph.tensors:
            apart = {places[user] for user in tensor.consumers}
            if tensor.requires_grad and tensor.producer and len(tensor.consumers) > _WITHOUT_ORDER and len(apart) > 1:
                return (
                    f"{len(tensor.consumers)} operators use {tensor.name} and are cut apart, and in which order their "
                    "gradients are added changes the last bits"
                )
    return ""


def _places(graph: ModelGraph, placement: Placement) -> Iterator[dict[str, tuple[int, int]]]:
    """Yield the rank and segment of each operator, for chunks whose operators lie on other ranks than before."""
    segments, seen = cut(graph, placement), set()
    for chunk, column in enumerate(zip(*placement.owners.values(), strict=True)):
        if column not in seen:
            seen.add(column)
            yield {
                name: (rank, index)
                for rank, own in enumerate(segments)
                for index in own.by_chunk.get(chunk, ())
                for name in own.segments[index].operators
            }
