"""Puts parts in the place of operators in a graph and in its measurements, so that the rest of planning knows no parts.

An operator is cut by its output channels. A part has the rows of each parameter that make its channels, and these are
parameters of the graph in their own right: owners, reductions, memory and traffic follow as for any other. What the
user's module holds, and with it every checkpoint, stays whole; `capture/cutting/program_splitting.py` is the executable
twin.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from fractions import Fraction

from nfold.core.graph import ModelGraph, Operator, Parameter, Rows, Tensor
from nfold.core.profile import OperatorProfile, Profile, Timing
from nfold.planning.inputs.facts import Facts
from nfold.planning.operator_parts.parts import OperatorPart, Parts, cut_into_parts, ordered


def split_facts(facts: Facts, splits: Mapping[str, int]) -> Facts:
    """Return the same planning question about the split graph.

    Raises:
        PlanError: an operator cannot be cut into so many parts.
    """
    if not splits:
        return facts
    profiles = {threads: split_profile(profile, facts.graph, splits) for threads, profile in facts.profiles.items()}
    return replace(facts, graph=split_graph(facts.graph, splits), profiles=profiles)


def split_graph(graph: ModelGraph, splits: Mapping[str, int]) -> ModelGraph:
    """Return a graph with operators cut into parts. O(operators x parts).

    Args:
        graph: the whole operators.
        splits: operator -> number of parts.

    Raises:
        PlanError: an operator cannot be cut into so many parts.
    """
    if not splits:
        return graph
    parts = cut_into_parts(graph, splits)
    operators = tuple(_operators(graph, parts))
    return replace(
        graph,
        operators=operators,
        tensors=tuple(_with_consumers(tensor, operators) for tensor in _tensors(graph, parts)),
        parameters=tuple(each for parameter in graph.parameters for each in _parameters(parameter, graph, parts)),
    )


def split_profile(profile: Profile, graph: ModelGraph, splits: Mapping[str, int]) -> Profile:
    """Return a profile in which each part takes its share of the operator's time.

    Args:
        profile: of the whole operators.
        graph: the whole operators.
        splits: operator -> number of parts.
    """
    known = {each.operator: each for each in profile.operators}
    if not splits or not known:
        return profile
    parts = cut_into_parts(graph, splits)
    operators: list[OperatorProfile] = []
    for operator in graph.operators:
        mine, whole = parts.of.get(operator.name), known[operator.name]
        if mine is None:
            operators.append(whole)
            continue
        if operator.name in parts.feeds:
            operators.append(replace(_scaled(whole, Fraction(0)), operator=parts.feeds[operator.name].name))
        operators.extend(replace(_scaled(whole, _share(part, operator)), operator=part.name) for part in mine)
    return replace(profile, operators=tuple(operators))


def row_name(parameter: str, part: OperatorPart) -> str:
    """Return the name of the rows of a parameter that a part uses."""
    return f"{parameter}[{part.start}:{part.stop}]"


def _share(part: OperatorPart, operator: Operator) -> Fraction:
    assert operator.channels is not None
    return Fraction(part.stop - part.start, operator.channels.count)


def _scaled(profile: OperatorProfile, share: Fraction) -> OperatorProfile:
    timings = tuple(
        replace(timing, forward=_scaled_timing(timing.forward, share), backward=_scaled_timing(timing.backward, share))
        for timing in profile.timings
    )
    return replace(profile, timings=timings, saved_bytes_per_sample=profile.saved_bytes_per_sample * float(share))


def _scaled_timing(timing: Timing, share: Fraction) -> Timing:
    return replace(timing, median_s=timing.median_s * float(share), spread_s=timing.spread_s * float(share))


def _operators(graph: ModelGraph, parts: Parts) -> Iterator[Operator]:
    by_name = {operator.name: operator for operator in graph.operators}
    for name, index in ordered(graph, parts):
        operator = by_name[name]
        if index < 0:
            yield replace(operator, inputs=parts.expand(operator.inputs))
            continue
        feed = parts.feeds.get(name)
        if feed is not None and index == 0:
            yield Operator(
                name=feed.name,
                kind="split",
                inputs=parts.expand((feed.input,)),
                outputs=feed.outputs,
                parameters=(),
            )
        yield _part_operator(operator, parts.of[name][index])


def _part_operator(operator: Operator, part: OperatorPart) -> Operator:
    return replace(
        operator,
        name=part.name,
        inputs=part.inputs,
        outputs=(part.output,),
        parameters=tuple(row_name(parameter, part) for parameter in operator.parameters),
        flops_per_sample=operator.flops_per_sample * float(_share(part, operator)),
        channels=None,
        whole="it is a part already",
    )


def _tensors(graph: ModelGraph, parts: Parts) -> Iterator[Tensor]:
    """Yield the tensors with their producers; the consumers are still those of the whole graph."""
    by_name = {operator.name: operator for operator in graph.operators}
    whole = {tensor.name: tensor for tensor in graph.tensors}
    for name, feed in parts.feeds.items():
        channels = by_name[name].channels
        assert channels is not None
        for output, size in zip(feed.outputs, feed.sizes, strict=True):
            yield _piece(whole[feed.input], output, feed.name, Fraction(size, channels.inputs))
    for tensor in graph.tensors:
        mine = parts.of.get(tensor.producer)
        if mine is None:
            yield tensor
            continue
        for part in mine:
            yield _piece(tensor, part.output, part.name, _share(part, by_name[tensor.producer]))


def _piece(tensor: Tensor, name: str, producer: str, share: Fraction) -> Tensor:
    return replace(
        tensor,
        name=name,
        producer=producer,
        bytes_per_sample=tensor.bytes_per_sample * share.numerator / share.denominator,
        fixed_bytes=round(tensor.fixed_bytes * share),
    )


def _with_consumers(tensor: Tensor, operators: tuple[Operator, ...]) -> Tensor:
    return replace(tensor, consumers=tuple(each.name for each in operators if tensor.name in each.inputs))


def _parameters(parameter: Parameter, graph: ModelGraph, parts: Parts) -> Iterator[Parameter]:
    mine = parts.of.get(parameter.users[0]) if parameter.users else None
    if mine is None:
        yield parameter
        return
    channels = graph.operator(parameter.users[0]).channels
    assert channels is not None
    for part in mine:
        size = part.stop - part.start
        yield replace(
            parameter,
            name=row_name(parameter.name, part),
            num_elements=parameter.num_elements // channels.count * size,
            num_bytes=parameter.num_bytes // channels.count * size,
            users=(part.name,),
            rows=Rows(parameter=parameter.name, start=part.start, stop=part.stop),
        )
