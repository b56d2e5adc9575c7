"""Names operators and tensors after the user's own module paths, the same on every rank that captures the program."""

from collections.abc import Sequence

from torch import fx

from nfold.capture.program.program_graph import INPUT, LOSS, MODEL, TARGET, LossCall, Scope, dotted, module_path


def operator_names(groups: Sequence[Sequence[fx.Node]]) -> list[str]:
    """Name groups of nodes: `features.0`, `block1.add`; a repeated name gets a number, `block1.add@2`."""
    taken = {INPUT, TARGET, LOSS}
    names = []
    for group in groups:
        if any(is_loss(node) for node in group) and len(group) == 1:
            names.append(LOSS)
            continue
        base = _base(group)
        name, number = base, 1
        while name in taken:
            number += 1
            name = f"{base}@{number}"
        taken.add(name)
        names.append(name)
    return names


def operator_kind(group: Sequence[fx.Node], scope: Scope) -> str:
    """Return what a group of nodes computes: `Conv2d`, `Conv2d+relu`, at most three parts."""
    parts = [node_kind(node, scope) for node in group]
    shown = list(dict.fromkeys(parts))
    return "+".join(shown[:3]) + ("+.." if len(shown) > 3 else "")


def node_kind(node: fx.Node, scope: Scope) -> str:
    """Return what one node computes, such as `Conv2d` or `relu`."""
    if node.op == "call_module":
        return type(scope.module(str(node.target))).__name__
    if node.op == "call_function":
        return str(getattr(node.target, "__name__", node.target)).removesuffix(".default")
    return str(node.target)


def is_loss(node: fx.Node) -> bool:
    """Whether a node calls the user's loss."""
    return isinstance(node.target, LossCall)


def _base(group: Sequence[fx.Node]) -> str:
    first = next((node for node in group if node.op == "call_module"), group[0])
    if first.op == "call_module":
        return module_path(str(first.target)) or MODEL
    function = str(getattr(first.target, "__name__", first.target)).split(".")[0]
    return dotted((first.meta["module"], function))
