"""A model whose operators can be cut into parts, without torch."""

from dataclasses import replace
from typing import Any

import grids

from nfold.core.graph import Channels, ModelGraph

MAPS = -3


def towers(**fields: Any) -> ModelGraph:
    """conv (4 maps) > relu > conv in 2 groups (8 maps) > fc (6 features, takes everything) > loss."""
    graph = grids.model(
        {"A": ("input",), "R": ("a",), "G": ("r",), "F": ("g",), "Loss": ("f", "target")},
        (
            grids.parameter("a.weight", 4 * 18, "A"),
            grids.parameter("a.bias", 4, "A"),
            grids.parameter("g.weight", 8 * 18, "G"),
            grids.parameter("f.weight", 6 * 8, "F"),
        ),
        **fields,
    )
    channels = {
        "A": Channels(axis=MAPS, count=4),
        "R": Channels(axis=MAPS, count=4, follows=True),
        "G": Channels(axis=MAPS, count=8, groups=2, inputs=4),
        "F": Channels(axis=-1, count=6),
    }
    operators = tuple(replace(each, channels=channels.get(each.name)) for each in graph.operators)
    return replace(graph, operators=operators)
