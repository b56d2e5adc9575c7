"""Turns a cut program into the nouns: operators, tensors, parameters and statistics of a ModelGraph."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace

import torch
from torch import fx, nn

from nfold.capture.batches.sizes import fit
from nfold.capture.batches.tree import dtype_name, num_bytes
from nfold.capture.cutting.captured import Captured, Layout, find_anchors, needs_size
from nfold.capture.cutting.chains import with_channels
from nfold.capture.cutting.compiled_segments import RandomNodes
from nfold.capture.cutting.naming import operator_kind, operator_names
from nfold.capture.cutting.operator_cut import Cut
from nfold.capture.program.program_graph import INPUT, LOSS, Scope, Traced
from nfold.capture.program_facts import ProgramFacts
from nfold.capture.tracing.observe import Play
from nfold.core.graph import ModelGraph, Operator, Parameter, Statistic, Tensor


def describe(traced: Traced, cut: Cut, plays: list[Play], facts: ProgramFacts, model: nn.Module) -> Captured:
    """Return a captured program: a trace with names for its operators and tensors, bound to a model."""
    layout = _layout(traced, cut, plays)
    scope = Scope(model, traced.constants)
    tensor_names = {node: name for name, node in layout.tensors.items()}
    parameter_names = {id(parameter): name for name, parameter in model.named_parameters()}
    stateful = {id(model.get_submodule(path)): path for path in facts.stateful}
    operators = [
        replace(
            _operator(name, layout, plays[0], scope, tensor_names, parameter_names),
            state=_state(group, scope, stateful),
        )
        for name, group in layout.operators.items()
    ]
    operators = with_channels(operators, layout.operators, layout.tensors, cut, plays[-1], scope)
    parameters = _parameters(model, operators, facts)
    is_static = facts.static_gradients and not traced.opaque
    graph = ModelGraph(
        operators=tuple(operators),
        tensors=_tensors(layout, plays, operators),
        parameters=parameters,
        statistics=_statistics(model, operators),
        capture=traced.method,
        indivisible=facts.indivisible or ("" if is_static else _unseen_gradients(parameters)),
        conditions=facts.conditions,
        unproved=facts.unproved,
        static_gradients=is_static,
        unkept=facts.unkept,
        least_samples=facts.least.samples,
        least_samples_module=facts.least.module,
        least_samples_error=facts.least.error,
        only_samples=facts.only_samples,
        why_pairs=facts.why_pairs,
        whole=traced.opaque,
        notes=(*facts.notes, *traced.notes),
    )
    return Captured(graph, layout, model)


def _unseen_gradients(parameters: tuple[Parameter, ...]) -> str:
    """Say why a model that cannot be looked into, and left parameters without gradient, must not be spread."""
    unseen = [parameter.name for parameter in parameters if parameter.trainable and not parameter.has_gradient]
    if not unseen:
        return ""
    return (
        f"{len(unseen)} trainable parameters, {unseen[0]!r} among them, got no gradient when the program was tried, "
        "and the model cannot be traced to tell whether they ever do. Freeze what is never used "
        "(requires_grad_(False)); what other batches use, as routed experts are, trains on one worker"
    )


def _layout(traced: Traced, cut: Cut, plays: list[Play]) -> Layout:
    operators = dict(zip(operator_names(cut.groups), cut.groups, strict=True))
    owner = {node: name for name, group in operators.items() for node in group}
    tensors = {str(node.target): node for node in traced.nodes if node.op == "placeholder"}
    for name, group in operators.items():
        outputs = [node for node in group if any(owner.get(user, name) != name for user in node.users)]
        if traced.result in group:
            tensors[LOSS] = traced.result
        many = len(outputs) > 1
        tensors |= {f"{name}:{index}" if many else name: node for index, node in enumerate(outputs)}
    random = {node for node in traced.nodes if any(play.nodes[node].random for play in plays)}
    foreign = {node for node in traced.nodes if any(play.nodes[node].foreign_random for play in plays)}
    drawing = [node for node in traced.nodes if node in random or node in foreign]
    return Layout(
        traced=traced,
        cut=cut,
        operators=operators,
        tensors=tensors,
        anchors=find_anchors(list(tensors.values()), plays),
        random=RandomNodes({node: draw for draw, node in enumerate(drawing)}, bool(foreign)),
    )


def _operator(
    name: str, layout: Layout, observed: Play, scope: Scope, names: dict[fx.Node, str], parameters: dict[int, str]
) -> Operator:
    """Describe an operator.

    Args:
        name: of it.
        layout: has its nodes.
        observed: what they did.
        scope: of the model.
        names: of tensors.
        parameters: the first name of each, by identity.
    """
    group = layout.operators[name]
    inputs = dict.fromkeys(names[node] for node in _inputs(group, layout))
    return Operator(
        name=name,
        kind=operator_kind(group, scope),
        inputs=tuple(inputs),
        outputs=tuple(names[node] for node in group if node in names),
        parameters=_parameter_names(group, scope, parameters),
        flops_per_sample=sum(observed.nodes[node].flops for node in group) / observed.size,
        num_random=sum(node in layout.random.draws for node in group),
        statistics=tuple(module for node in group for module in observed.nodes[node].statistics),
    )


def _inputs(group: tuple[fx.Node, ...], layout: Layout) -> list[fx.Node]:
    """Return what a group needs from outside, in order of first use; something to count the samples by included."""
    cut, found, seen = layout.cut, list[fx.Node](), set(group)

    def visit(node: fx.Node) -> None:
        if node in seen or node.op == "get_attr" or node in cut.sizes:
            return
        seen.add(node)
        if node in cut.parts:
            visit(node.all_input_nodes[0])
        else:
            found.append(node)

    for node in group:
        for used in node.all_input_nodes:
            visit(used)
    if any(needs_size(node, cut) for node in group) and not any(node in layout.anchors for node in found):
        found.append(layout.tensors[INPUT])
    return found


def _tensors(layout: Layout, plays: list[Play], operators: list[Operator]) -> tuple[Tensor, ...]:
    producers = {name: operator.name for operator in operators for name in operator.outputs}
    consumers = _users((operator.name, operator.inputs) for operator in operators)
    found = []
    for name, node in layout.tensors.items():
        per_sample, fixed = _bytes(node, layout, plays)
        tensor = Tensor(
            name=name,
            producer=producers.get(name, ""),
            consumers=tuple(consumers.get(name, ())),
            bytes_per_sample=per_sample,
            fixed_bytes=fixed,
            requires_grad=plays[-1].nodes[node].has_gradient,
        )
        found.append(tensor)
    return tuple(found)


def _users(uses: Iterable[tuple[str, Iterable[str]]]) -> dict[str, list[str]]:
    """Turn (user, what it uses) around: what is used -> its users, in order, each once."""
    found: dict[str, list[str]] = {}
    for user, names in uses:
        for name in dict.fromkeys(names):
            found.setdefault(name, []).append(user)
    return found


def _bytes(node: fx.Node, layout: Layout, plays: list[Play]) -> tuple[float, int]:
    if node in layout.cut.specs:
        return layout.cut.specs[node].bytes()
    totals = [(play.size, num_bytes(play.nodes[node].value)) for play in plays]
    line = fit(totals)
    return (float(line.slope), line.fixed) if line else (totals[0][1] / totals[0][0], 0)


def _parameter_names(group: tuple[fx.Node, ...], scope: Scope, canonical: dict[int, str]) -> tuple[str, ...]:
    used: dict[str, None] = {}
    for node in group:
        # A module's result is no use of its weights by whoever takes it.
        for source in (node, *(given for given in node.all_input_nodes if given.op == "get_attr")):
            for parameter in _node_parameters(source, scope):
                if id(parameter) in canonical:
                    used[canonical[id(parameter)]] = None
    return tuple(used)


def _node_parameters(node: fx.Node, scope: Scope) -> list[torch.Tensor]:
    if node.op == "get_attr":
        return [scope.tensor(str(node.target))]
    return list(scope.module(str(node.target)).parameters()) if node.op == "call_module" else []


def _state(group: tuple[fx.Node, ...], scope: Scope, stateful: Mapping[int, str]) -> tuple[str, ...]:
    """Return which modules that carry state, given by identity, a group calls or reads from."""
    touched: dict[int, None] = {}
    for node in group:
        if node.op == "call_module":
            touched |= {id(module): None for module in scope.module(str(node.target)).modules()}
        reads = [given for given in node.all_input_nodes if given.op == "get_attr"]
        touched |= {id(scope.owner(str(read.target))[0]): None for read in reads}
    return tuple(stateful[each] for each in touched if each in stateful)


def _parameters(model: nn.Module, operators: list[Operator], facts: ProgramFacts) -> tuple[Parameter, ...]:
    users = _users((operator.name, operator.parameters) for operator in operators)
    return tuple(
        Parameter(
            name=name,
            num_elements=parameter.numel(),
            num_bytes=parameter.nbytes,
            dtype=dtype_name(parameter.dtype),
            trainable=parameter.requires_grad,
            users=tuple(users.get(name, ())),
            has_gradient=name in facts.gradients,
            sparse_dims=facts.sparse.get(name, 0),
            written=name in facts.written,
        )
        for name, parameter in model.named_parameters()
    )


def _statistics(model: nn.Module, operators: list[Operator]) -> tuple[Statistic, ...]:
    calls = Counter(module for operator in operators for module in operator.statistics)
    modules = dict(model.named_modules())
    return tuple(
        Statistic(
            module=name,
            num_channels=modules[name].running_mean.numel(),
            num_calls=count,
            dtype=dtype_name(modules[name].running_mean.dtype),
        )
        for name, count in calls.items()
    )
