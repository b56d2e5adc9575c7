"""Finds the operators that can be cut by output channels, and tries each of them in parts before it is believed.

An operator can be cut if its nodes are a chain: a convolution or linear layer, or nothing, and then what keeps channels
apart (an activation in place is in the operator of the layer before it). Without a layer it only follows.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import fx

from nfold.capture.batches.sizes import Affine
from nfold.capture.computing.step_outcome import close
from nfold.capture.cutting.channelwise import keeps_channels
from nfold.capture.cutting.operator_cut import Cut
from nfold.capture.program.program_graph import Scope
from nfold.capture.tracing.layer_rows import Layer, layer_of, why_no_layer
from nfold.capture.tracing.observe import Play, compute
from nfold.core.graph import Channels, Operator


@dataclass(frozen=True, kw_only=True, slots=True)
class Chain:
    """The nodes of an operator that can be cut by output channels."""

    source: fx.Node
    """What it takes."""
    layer: Layer | None
    rest: tuple[fx.Node, ...]
    """Nodes that keep channels apart, one after another."""
    last: fx.Node


def chain_of(nodes: Sequence[fx.Node], scope: Scope, cut: Cut, axis: int | None = None) -> Chain | None:
    """Return the nodes of an operator as a chain; None if they are none.

    Args:
        nodes: of the operator.
        scope: of the model.
        cut: knows which nodes belong to no operator.
        axis: where its input counts channels, if that comes in parts.
    """
    layer = layer_of(nodes[0], scope)
    if layer is None and axis is None:
        return None
    rest = nodes[1:] if layer else nodes
    before = nodes[0] if layer else nodes[0].all_input_nodes[0]
    source, counted = layer.input if layer else before, layer.channels.axis if layer else axis
    for node in rest:
        if node.all_input_nodes != [before] or not keeps_channels(node, scope, counted or 0):
            return None
        before = node
    kept = [node for node in nodes[:-1] if any(user not in nodes and user not in cut.sizes for user in node.users)]
    return None if kept else Chain(source=source, layer=layer, rest=tuple(rest), last=nodes[-1])


def with_channels(
    operators: Sequence[Operator],
    nodes: dict[str, tuple[fx.Node, ...]],
    tensors: dict[str, fx.Node],
    cut: Cut,
    play: Play,
    scope: Scope,
) -> list[Operator]:
    """Return the operators, with the channels of those that can be cut and the reason why others cannot.

    About one forward pass.

    Args:
        operators: in topological order.
        nodes: of each operator.
        tensors: their names.
        cut: of the program.
        play: what its nodes did.
        scope: of a model with the weights of the play.
    """
    uses = Counter(name for operator in operators for name in operator.parameters)
    known: dict[str, Channels] = {}
    found = []
    for operator in operators:
        group, name = nodes[operator.name], operator.inputs[0] if operator.inputs else ""
        followed = known.get(name)
        chain = chain_of(group, scope, cut, followed.axis if followed else None)
        tied = next((each for each in operator.parameters if uses[each] > 1), "")
        whole = _why_whole(operator, group, chain, tied, scope)
        channels = None if whole or chain is None else _channels(chain, followed)
        if (
            chain
            and channels
            and _fits(operator, chain, channels, tensors, cut)
            and _tried(chain, channels, play, scope)
        ):
            known[operator.outputs[0]] = channels
            found.append(replace(operator, channels=channels))
        else:
            found.append(replace(operator, whole=whole))
    return found


def _why_whole(operator: Operator, group: tuple[fx.Node, ...], chain: Chain | None, tied: str, scope: Scope) -> str:
    if chain is not None and chain.layer is not None:
        return f"{tied} is used by another operator too" if tied else ""
    reason = next((reason for node in group if (reason := why_no_layer(node, scope))), "")
    if not reason and any(layer_of(node, scope) for node in group):
        reason = f"it is one piece with what changes its result in place: {operator.kind}"
    return reason


def _channels(chain: Chain, followed: Channels | None) -> Channels | None:
    if chain.layer is not None:
        return chain.layer.channels
    return replace(followed, groups=1, inputs=0, follows=True) if followed else None


def _fits(operator: Operator, chain: Chain, channels: Channels, tensors: dict[str, fx.Node], cut: Cut) -> bool:
    """Whether the operator takes and makes one tensor each, with as many channels as expected wherever it counts."""
    if len(operator.inputs) != 1 or [tensors[name] for name in operator.outputs] != [chain.last]:
        return False
    spec = cut.specs.get(chain.last)
    return (
        spec is not None and len(spec.shape) > -channels.axis and spec.shape[channels.axis] == Affine(channels.count, 0)
    )


def _tried(chain: Chain, channels: Channels, play: Play, scope: Scope) -> bool:
    """Compare what two parts make with what the whole made."""
    if channels.units < 2:
        return False
    middle = channels.units // 2 * (channels.count // channels.units)
    region = chain.last.meta["region"]
    with region.enter(), torch.no_grad():
        halves = [_half(chain, channels, play, scope, *each) for each in ((0, middle), (middle, channels.count))]
        joined = torch.cat(halves, channels.axis)
    return close(play.nodes[chain.last].value.detach(), joined, region.lowest_precision)


def _half(chain: Chain, channels: Channels, play: Play, scope: Scope, start: int, stop: int) -> torch.Tensor:
    value, layer = play.nodes[chain.source].value.detach(), chain.layer
    taken = (start, stop) if layer is None else channels.taken(start, stop)
    if taken is not None:
        value = value.narrow(channels.axis, taken[0], taken[1] - taken[0])
    if layer is not None:
        bias = scope.tensor(layer.bias)[start:stop] if layer.bias else None
        call = layer.call.of_groups(channels.groups_of(start, stop))
        value = call(value, scope.tensor(layer.weight)[start:stop], bias)
    for node in chain.rest:
        value = compute(node, scope, (value, *node.args[1:]), node.kwargs)
    return value  # type: ignore[no-any-return]
