"""Convolutions and linear layers as functions of some rows of their weight: what makes some of their output's channels.

Only torch's own layers are known, by their exact type: a subclass, a parametrization or a hook may do anything.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx, nn
from torch.nn import functional as F

from nfold.capture.program.program_graph import MODEL, Scope
from nfold.core.graph import Channels

_CONVOLUTIONS: dict[type, Callable[..., torch.Tensor]] = {
    nn.Conv1d: F.conv1d,
    nn.Conv2d: F.conv2d,
    nn.Conv3d: F.conv3d,
}
_LAYERS = (nn.Linear, *_CONVOLUTIONS)
_FUNCTIONS: dict[Any, tuple[Callable[..., torch.Tensor], int]] = {
    F.linear: (F.linear, 0),
    torch.ops.aten.linear.default: (F.linear, 0),
    F.conv1d: (F.conv1d, 1),
    F.conv2d: (F.conv2d, 2),
    F.conv3d: (F.conv3d, 3),
    torch.ops.aten.conv1d.default: (F.conv1d, 1),
    torch.ops.aten.conv2d.default: (F.conv2d, 2),
    torch.ops.aten.conv3d.default: (F.conv3d, 3),
}
"""Functions of (input, weight, bias, ..), with the dimensions of the maps that they convolve; 0: features."""
_SETTINGS = {"stride": 1, "padding": 0, "dilation": 1, "groups": 1}


class RowsCall:
    """Computes the channels of some rows of a weight. It has the settings of a layer, not its weights."""

    def __init__(self, function: Callable[..., torch.Tensor], settings: tuple[Any, ...], padding: Any = None) -> None:
        self._function, self._settings, self._padding = function, settings, padding
        self.__name__ = str(getattr(function, "__name__", "rows")).split(".")[0]

    def of_groups(self, groups: int) -> "RowsCall":
        """Return the same for rows that are so many groups; without meaning for a linear layer."""
        return RowsCall(self._function, (*self._settings[:-1], groups), self._padding) if self._settings else self

    def __call__(self, input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        """Compute."""
        if self._padding is not None:
            input = F.pad(input, self._padding[0], mode=self._padding[1])
        return self._function(input, weight, bias, *self._settings)


@dataclass(frozen=True, kw_only=True, slots=True)
class Layer:
    """A node that computes some output channels with some rows of a weight."""

    input: fx.Node
    weight: str
    bias: str | None
    """Paths in the graph of the program."""
    call: RowsCall
    channels: Channels


def layer_of(node: fx.Node, scope: Scope) -> Layer | None:
    """Return a node as a layer whose rows are known; None if it is none. See `why_no_layer`."""
    if node.op == "call_module":
        known = type(scope.module(str(node.target))) in _LAYERS and not why_no_layer(node, scope)
        return _of_module(node, scope) if known else None
    if node.op == "call_function" and node.target in _FUNCTIONS:
        return _of_function(node, scope)
    return None


def why_no_layer(node: fx.Node, scope: Scope) -> str:
    """Say why a module that looks like a convolution or linear layer must stay whole; empty for all others too."""
    if node.op != "call_module":
        return ""
    module = scope.module(str(node.target))
    if not isinstance(module, (nn.Linear, nn.modules.conv._ConvNd)):
        return ""
    if type(module) not in _LAYERS:
        return f"{type(module).__name__} may compute its weight or its result in a way of its own"
    if is_watched(module):
        return "it has hooks, which see the whole layer"
    if len(node.args) != 1 or node.kwargs:
        return "it is called with more than its input"
    return ""


def is_watched(module: nn.Module) -> bool:
    """Whether a call of a module may do something else than its class says, because of hooks or parametrizations."""
    hooks = (
        module._forward_hooks,
        module._forward_pre_hooks,
        module._backward_hooks,
        module._backward_pre_hooks,
        *(parameter._backward_hooks for parameter in module.parameters(recurse=False)),
        *(parameter._post_accumulate_grad_hooks for parameter in module.parameters(recurse=False)),
    )
    return any(hooks) or "forward" in vars(module)


def _of_module(node: fx.Node, scope: Scope) -> Layer | None:
    module, path = scope.module(str(node.target)), str(node.target)
    (given,) = node.args
    if not isinstance(given, fx.Node):
        return None
    weight, bias = f"{path}.weight", f"{path}.bias" if module.bias is not None else None
    if isinstance(module, nn.Linear):
        call, channels = RowsCall(F.linear, ()), Channels(axis=-1, count=module.out_features)
    else:
        assert isinstance(module, nn.modules.conv._ConvNd)
        call = _convolution(module)
        channels = _maps(len(module.kernel_size), module.out_channels, module.groups, module.in_channels)
    return Layer(input=given, weight=weight, bias=bias, call=call, channels=channels)


def _convolution(module: nn.modules.conv._ConvNd) -> RowsCall:
    """Pad as the module does: other modes than zeros are a call of their own."""
    zeros = module.padding_mode == "zeros"
    padding = None if zeros else (module._reversed_padding_repeated_twice, module.padding_mode)
    settings = (module.stride, module.padding if zeros else 0, module.dilation, module.groups)
    return RowsCall(_CONVOLUTIONS[type(module)], settings, padding)


def _of_function(node: fx.Node, scope: Scope) -> Layer | None:
    names = ("input", "weight", "bias", *_SETTINGS)
    given: dict[str, Any] = dict.fromkeys(names[:3]) | _SETTINGS
    given.update(zip(names, node.args, strict=False))
    given.update(node.kwargs)
    source, weight, bias = given["input"], given["weight"], given["bias"]
    (function, dimensions), settings = _FUNCTIONS[node.target], tuple(given[name] for name in _SETTINGS)
    if not isinstance(source, fx.Node) or nodes_in(settings):
        return None
    if not _is_parameter(weight, scope) or not (bias is None or _is_parameter(bias, scope)):
        return None
    rows = scope.tensor(str(weight.target))
    channels = Channels(axis=-1, count=rows.shape[0])
    if dimensions:
        groups = int(given["groups"])
        channels = _maps(dimensions, rows.shape[0], groups, rows.shape[1] * groups)
    return Layer(
        input=source,
        weight=str(weight.target),
        bias=str(bias.target) if bias is not None else None,
        call=RowsCall(function, settings if dimensions else ()),
        channels=channels,
    )


def _maps(dimensions: int, count: int, groups: int, inputs: int) -> Channels:
    return Channels(axis=-1 - dimensions, count=count, groups=groups, inputs=inputs if groups > 1 else 0)


def _is_parameter(node: Any, scope: Scope) -> bool:
    if not isinstance(node, fx.Node) or node.op != "get_attr" or not str(node.target).startswith(f"{MODEL}."):
        return False
    tensor = scope.tensor(str(node.target))
    return isinstance(tensor, nn.Parameter) and not tensor._backward_hooks and not tensor._post_accumulate_grad_hooks


def nodes_in(values: Sequence[Any]) -> list[fx.Node]:
    """Return the nodes inside arguments, and inside their lists."""
    found: list[fx.Node] = []

    def keep(node: fx.Node) -> fx.Node:
        found.append(node)
        return node

    fx.map_arg(tuple(values), keep)
    return found
