"""Groups batch norms by their owners: each owner needs every chunk's statistics to keep equal running averages."""

from collections import defaultdict

from nfold.core.graph import ModelGraph
from nfold.core.placement import Placement
from nfold.core.schedule import StatisticsGroup
from nfold.errors import InternalError
from nfold.planning.reductions.buckets import ITEM_BYTES


def statistics_groups(
    graph: ModelGraph, placement: Placement, *, also_alone: bool = False
) -> tuple[StatisticsGroup, ...]:
    """Group the batch norms whose chunks have the same owners.

    Where one rank computes everything there is nothing to group: it runs the modules as they are. With `also_alone` it
    folds rows too, and so rounds as several ranks do.

    Raises:
        InternalError: two operators that update one module's statistics, or other state of it, are placed differently.
    """
    if not also_alone and len({rank for owners in placement.owners.values() for rank in owners}) == 1:
        return ()
    dtypes = {statistic.module: statistic.dtype for statistic in graph.statistics}
    grouped: dict[tuple[tuple[int, ...], str], list[str]] = defaultdict(list)
    owners_of: dict[str, tuple[int, ...]] = {}
    for operator in graph.operators:
        owners = placement.owners[operator.name]
        for module in operator.shared:
            if owners_of.setdefault(module, owners) != owners:
                raise InternalError(f"the operators that update {module}'s state must be placed together")
        if operator.statistics:
            grouped[owners, dtypes[operator.statistics[0]]].append(operator.name)
    return tuple(
        _group(graph, f"statistics/{index}", tuple(operators), owners, dtype)
        for index, ((owners, dtype), operators) in enumerate(grouped.items())
    )


def _group(
    graph: ModelGraph, name: str, operators: tuple[str, ...], owners: tuple[int, ...], dtype: str
) -> StatisticsGroup:
    channels = {statistic.module: statistic.num_channels for statistic in graph.statistics}
    calls = [module for operator in operators for module in graph.operator(operator).statistics]
    return StatisticsGroup(
        name=name,
        operators=operators,
        members=tuple(sorted(set(owners))),
        num_elements=2 * sum(channels[module] for module in calls),
        dtype=dtype,
        item_bytes=ITEM_BYTES[dtype],
    )
