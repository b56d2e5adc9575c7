"""What computes each channel from the same channel of its input, without weights: activations and pooling."""

from typing import Any

import torch
from torch import fx, nn
from torch.nn import functional as F

from nfold.capture.program.program_graph import Scope
from nfold.capture.tracing.layer_rows import is_watched, nodes_in

_ELEMENTWISE_MODULES = (
    nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.ELU, nn.SELU, nn.CELU, nn.GELU, nn.SiLU, nn.Mish, nn.Sigmoid, nn.Tanh,
    nn.Softplus, nn.Softsign, nn.Hardswish, nn.Hardsigmoid, nn.Hardtanh, nn.Identity,
)  # fmt: skip
_POOLING_MODULES: dict[type, int] = {
    pooling: dimensions
    for dimensions in (1, 2, 3)
    for pooling in (
        getattr(nn, f"{prefix}Pool{dimensions}d") for prefix in ("Max", "Avg", "AdaptiveMax", "AdaptiveAvg")
    )
}
_NAMES = (
    "relu", "relu_", "relu6", "leaky_relu", "elu", "selu", "celu", "gelu", "silu", "mish", "sigmoid", "sigmoid_",
    "tanh", "tanh_", "softplus", "hardswish", "hardsigmoid", "hardtanh",
)  # fmt: skip
_METHODS = frozenset({"relu", "relu_", "sigmoid", "sigmoid_", "tanh", "tanh_"})
_ELEMENTWISE_FUNCTIONS = frozenset(
    function for name in _NAMES for space in (torch, F) if (function := getattr(space, name, None)) is not None
) | {packet.default for name in _NAMES if (packet := getattr(torch.ops.aten, name, None)) is not None}
_POOLING_FUNCTIONS: dict[Any, int] = {
    getattr(F, f"{name}_pool{dimensions}d"): dimensions
    for dimensions in (1, 2, 3)
    for name in ("max", "avg", "adaptive_max", "adaptive_avg")
} | {
    getattr(torch.ops.aten, f"{name}{dimensions}d").default: dimensions
    for dimensions in (1, 2, 3)
    for name in ("max_pool", "avg_pool", "adaptive_avg_pool")
}


def keeps_channels(node: fx.Node, scope: Scope, axis: int) -> bool:
    """Whether each output channel of a node is computed from the same channel of its only input.

    Channels are counted on dimension `axis`.
    """
    first, *rest = [*node.args, *node.kwargs.values()] or [None]
    if not isinstance(first, fx.Node) or not node.args or nodes_in(rest):
        return False
    if node.op == "call_method":
        return node.target in _METHODS
    if node.op == "call_function":
        return node.target in _ELEMENTWISE_FUNCTIONS or _POOLING_FUNCTIONS.get(node.target) == -1 - axis
    module = scope.module(str(node.target))
    kind = type(module)
    return (kind in _ELEMENTWISE_MODULES or _POOLING_MODULES.get(kind) == -1 - axis) and not is_watched(module)
