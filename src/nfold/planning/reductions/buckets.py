"""Joins parameters into buckets, last layers first, so that a bucket can travel while earlier layers are computed.

Which rank sums which part of one is in `shares.py`.
"""

import math
from collections.abc import Mapping

from nfold.core.graph import ModelGraph, Parameter
from nfold.core.placement import Placement, Reduction, Route

ITEM_BYTES = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2, "complex64": 8, "complex128": 16}
UNLIMITED_BYTES = 1 << 62
PIECE_BYTES = 1 << 20
"""Largest message: long enough to hide its fixed cost, short enough to overlap with the next."""

_ALIGNED = 16


def fill_buckets(graph: ModelGraph, members: tuple[int, ...], route: Route, bucket_bytes: int) -> tuple[Reduction, ...]:
    """Return one reduction for each bucket, without shares, for a model that every member computes whole.

    Args:
        graph: whose trained parameters are reduced.
        members: ranks that hold the model.
        route: `ring`, `server` or `local`.
        bucket_bytes: the most of a bucket, unless a single parameter is larger.
    """
    return _fill(backward_order(graph), members, route, bucket_bytes, first=0)


def buckets_of(graph: ModelGraph, placement: Placement, route: Route, bucket_bytes: int) -> tuple[Reduction, ...]:
    """Return one reduction for each bucket, without shares, for any placement.

    Parameters with the same owners share buckets. One with a single owner is `local` whatever the route: nothing of it
    is sent, so one bucket holds all that fit together.

    Args:
        graph: whose trained parameters are reduced.
        placement: says who owns them.
        route: of parameters with several owners.
        bucket_bytes: the most of a bucket that is sent, unless a single parameter is larger.
    """
    by_members: dict[tuple[int, ...], list[Parameter]] = {}
    for parameter in backward_order(graph):
        by_members.setdefault(placement.ranks_of(parameter.users), []).append(parameter)
    found: list[Reduction] = []
    for members, parameters in by_members.items():
        shared = len(members) > 1
        way, limit = (route, bucket_bytes) if shared else ("local", UNLIMITED_BYTES)
        found.extend(_fill(parameters, members, way, limit, first=len(found)))
    return tuple(found)


def sparse_notes(graph: ModelGraph, reductions: tuple[Reduction, ...]) -> tuple[str, ...]:
    """Say which sparse gradients travel as dense ones, and how large they are; nothing where none does."""
    sent = {name for each in reductions if each.route != "local" for name in each.parameters}
    tables = [each for each in graph.parameters if each.sparse_dims and each.name in sent]
    if not tables:
        return ()
    whose = tables[0].name + (f" and {len(tables) - 1} more" if len(tables) > 1 else "")
    verbs = ("gradients of", "are") if len(tables) > 1 else ("gradient of", "is")
    size = sum(each.num_bytes for each in tables)
    told = f"{size / 2**20:.3g} MiB" if size >= 1 << 20 else f"{math.ceil(size / 1024)} KiB"
    return (
        f"the {verbs[0]} {whose} {verbs[1]} sparse, and summed over ranks as dense: {told} in each step, however few "
        "rows are touched",
    )


def _fill(
    parameters: list[Parameter], members: tuple[int, ...], route: Route, bucket_bytes: int, *, first: int
) -> tuple[Reduction, ...]:
    """Put each parameter where it lies once; parameters of different types never share a bucket.

    A parameter larger than a bucket gets one of its own.
    """
    buckets: list[list[Parameter]] = []
    sizes: list[int] = []
    for parameter in parameters:
        fits = buckets and buckets[-1][0].dtype == parameter.dtype and sizes[-1] + parameter.num_bytes <= bucket_bytes
        if fits:
            buckets[-1].append(parameter)
            sizes[-1] += parameter.num_bytes
        else:
            buckets.append([parameter])
            sizes.append(parameter.num_bytes)
    aligned = [sorted(bucket, key=lambda parameter: -_alignment(parameter)) for bucket in buckets]
    return tuple(_reduction(first + index, bucket, members, route) for index, bucket in enumerate(aligned))


def _alignment(parameter: Parameter) -> int:
    """Return the largest power of two, up to 16, that divides the elements of a parameter.

    Sorted by it, each parameter begins at a multiple of its own, and no byte is lost. torch reads pairs of numbers as
    complex ones (`view_as_complex`), or as wider types, only there.
    """
    return math.gcd(parameter.num_elements, _ALIGNED)


def bounds(reduction: Reduction, graph: ModelGraph) -> tuple[int, ...]:
    """Return the index of each parameter's first element in a bucket, and at last the number of elements."""
    elements = {parameter.name: parameter.num_elements for parameter in graph.parameters}
    offsets = [0]
    for name in reduction.parameters:
        offsets.append(offsets[-1] + elements[name])
    return tuple(offsets)


def users_of(graph: ModelGraph, reduction: Reduction) -> frozenset[str]:
    """Return the operators that use a parameter of a bucket."""
    inside = set(reduction.parameters)
    return frozenset(user for each in graph.parameters if each.name in inside for user in each.users)


def completion(operators: tuple[str, ...], users: frozenset[str], seconds: Mapping[str, tuple[float, float]]) -> float:
    """Return the share of a backward over `operators` after which the first user of a bucket has been passed.

    Args:
        operators: of the segment, in the order of forward.
        users: of the bucket; one of them at least is in the segment.
        seconds: forward and backward of each operator.
    """
    backward = [seconds[operator][1] for operator in operators]
    first = next(index for index, operator in enumerate(operators) if operator in users)
    total = sum(backward)
    return min(1.0, sum(backward[first:]) / total) if total > 0 else 1.0


def backward_order(graph: ModelGraph) -> list[Parameter]:
    """Parameters by their earliest user, last first: the order in which a backward pass completes their gradients."""
    position = {operator.name: index for index, operator in enumerate(graph.operators)}
    first = {parameter.name: min(position[user] for user in parameter.users) for parameter in graph.trained}
    order = {parameter.name: index for index, parameter in enumerate(graph.parameters)}
    return sorted(graph.trained, key=lambda parameter: (-first[parameter.name], -order[parameter.name]))


def _reduction(index: int, bucket: list[Parameter], members: tuple[int, ...], route: Route) -> Reduction:
    item_bytes = ITEM_BYTES[bucket[0].dtype]
    return Reduction(
        name=f"b{index}",
        parameters=tuple(parameter.name for parameter in bucket),
        num_elements=sum(parameter.num_elements for parameter in bucket),
        dtype=bucket[0].dtype,
        item_bytes=item_bytes,
        members=members,
        route=route,
        piece_elements=PIECE_BYTES // item_bytes,
    )
