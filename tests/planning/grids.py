"""Small models, placements and machines, by hand and at random, without torch."""

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from nfold.core.cluster import Channel, Cluster, Node
from nfold.core.graph import ModelGraph, Operator, Parameter, Statistic, Tensor
from nfold.core.placement import Placement, Reduction
from nfold.core.profile import ChunkTiming, OperatorProfile, Profile, Timing
from nfold.planning.inputs.facts import Facts
from nfold.planning.reductions.buckets import bounds, buckets_of
from nfold.planning.reductions.shares import cut_shares

ITEM_BYTES = {"float32": 4, "float64": 8}


def parameter(name: str, num_elements: int, *users: str, dtype: str = "float32", trainable: bool = True) -> Parameter:
    return Parameter(
        name=name,
        num_elements=num_elements,
        num_bytes=num_elements * ITEM_BYTES[dtype],
        dtype=dtype,
        trainable=trainable,
        users=users,
    )


def model(
    inputs: dict[str, tuple[str, ...]],
    parameters: tuple[Parameter, ...] = (),
    statistics: tuple[Statistic, ...] = (),
    **fields: Any,
) -> ModelGraph:
    """A graph of operators that each make one tensor, their own name in small letters but for the last: the loss.

    Args:
        inputs: operator -> tensors that it takes, in topological order.
        parameters: whose users are operators.
        statistics: module NAME belongs to operator NAME.
        fields: of the graph.
    """
    names = list(inputs)
    made = {name: "loss" if name == names[-1] else name.lower() for name in names}
    trained = {user for each in parameters if each.trainable for user in each.users}
    needs: set[str] = set()
    for name in names:
        if name in trained or needs & set(inputs[name]):
            needs.add(made[name])
    tensors = [
        Tensor(
            name=name,
            producer="",
            consumers=tuple(user for user in names if name in inputs[user]),
            bytes_per_sample=4.0,
            requires_grad=False,
        )
        for name in ("input", "target")
    ]
    tensors += [
        Tensor(
            name=made[name],
            producer=name,
            consumers=tuple(user for user in names if made[name] in inputs[user]),
            bytes_per_sample=8.0,
            requires_grad=made[name] in needs,
        )
        for name in names
    ]
    modules = {each.module for each in statistics}
    operators = tuple(
        Operator(
            name=name,
            kind="op",
            inputs=inputs[name],
            outputs=(made[name],),
            parameters=tuple(each.name for each in parameters if name in each.users),
            statistics=(name,) if name in modules else (),
        )
        for name in names
    )
    return ModelGraph(
        operators=operators,
        tensors=tuple(tensors),
        parameters=parameters,
        statistics=statistics,
        capture="fx",
        **fields,
    )


def chain(*num_elements: int, **fields: Any) -> ModelGraph:
    """Operators A, B, .. in a row, each with one weight, and the loss C that takes the target."""
    names = [chr(ord("A") + index) for index in range(len(num_elements))]
    inputs: dict[str, tuple[str, ...]] = {}
    before = "input"
    for name in names:
        inputs[name], before = (before,), name.lower()
    inputs["Loss"] = (before, "target")
    weights = tuple(
        parameter(f"{name.lower()}.weight", count, name) for name, count in zip(names, num_elements, strict=True)
    )
    return model(inputs, weights, **fields)


def place(owners: dict[str, tuple[int, ...]], world_size: int) -> Placement:
    return Placement(num_chunks=len(next(iter(owners.values()))), world_size=world_size, owners=owners)


def channel(bandwidth_bytes_per_s: float = 1e8, latency_s: float = 1e-4) -> Channel:
    return Channel(latency_s=latency_s, bandwidth_bytes_per_s=bandwidth_bytes_per_s, origin="declared")


def profile(graph: ModelGraph, seconds_per_sample: float = 1e-3, **fields: Any) -> Profile:
    """Every operator alike; backward takes twice as long as forward."""

    def timings(share: float) -> tuple[ChunkTiming, ...]:
        return tuple(
            ChunkTiming(
                chunk_size=size,
                forward=Timing(median_s=size * seconds_per_sample * share, spread_s=0.0, repeats=1),
                backward=Timing(median_s=2 * size * seconds_per_sample * share, spread_s=0.0, repeats=1),
            )
            for size in (1, 64)
        )

    share = 1 / len(graph.operators)
    given: dict[str, Any] = {
        "device_kind": "cpu",
        "num_threads": 1,
        "operators": tuple(
            OperatorProfile(operator=op.name, timings=timings(share), saved_bytes_per_sample=1.0)
            for op in graph.operators
        ),
        "whole": timings(1.0),
        "update": Timing(median_s=1e-4, spread_s=0.0, repeats=1),
        "load_s_per_sample": 0.0,
        "parameter_bytes": graph.parameter_bytes,
        "optimizer_bytes": 0,
        "activation_bytes_per_sample": 0.0,
        "base_bytes": 0,
        "peak_bytes": 0,
    }
    return Profile(**{**given, **fields})


def facts(graph: ModelGraph, workers: int = 2, servers: int = 0, **fields: Any) -> Facts:
    """One quick node with a core for everybody."""
    node = Node(name="box", cores=16.0, memory_bytes=1 << 40, local=channel())
    given: dict[str, Any] = {
        "graph": graph,
        "profiles": {1: profile(graph)},
        "cluster": Cluster(nodes=(node,)),
        "nodes": ("box",) * (workers + servers),
        "workers": workers,
        "servers": servers,
        "batch_size": 32,
    }
    return Facts(**{**given, **fields})


@st.composite
def graphs(draw: st.DrawFn) -> ModelGraph:
    """Up to five operators in any acyclic shape that ends in a loss, with tied, frozen and mixed parameters."""
    names = [f"O{index}" for index in range(draw(st.integers(1, 5)))]
    inputs: dict[str, tuple[str, ...]] = {}
    unused: list[str] = []
    for index, name in enumerate(names):
        earlier = ["input", *(other.lower() for other in names[:index])]
        taken = draw(st.lists(st.sampled_from(earlier), min_size=1, max_size=2, unique=True))
        if index == len(names) - 1:
            taken = list(dict.fromkeys([*taken, *unused, "target"]))
        inputs[name] = tuple(taken)
        unused = [tensor for tensor in unused if tensor not in taken] + [name.lower()]
    weights = [
        parameter(
            f"p{index}",
            draw(st.integers(1, 9)),
            *draw(st.lists(st.sampled_from(names), min_size=1, max_size=2, unique=True)),
            dtype=draw(st.sampled_from(["float32", "float32", "float64"])),
            trainable=draw(st.integers(0, 4)) > 0,
        )
        for index in range(draw(st.integers(0, 5)))
    ]
    norms = draw(st.lists(st.sampled_from(names), max_size=2, unique=True))
    statistics = tuple(Statistic(module=name, num_channels=3, num_calls=1, dtype="float32") for name in norms)
    scope = draw(st.sampled_from(["element", "model"]))
    return model(inputs, tuple(weights), statistics, update_scope=scope, clips_gradients=draw(st.booleans()))


@st.composite
def grids(draw: st.DrawFn) -> tuple[ModelGraph, Placement, tuple[Reduction, ...]]:
    """Any model, any placement on up to five ranks, any route, in pieces or not."""
    graph = draw(graphs())
    world, chunks = draw(st.integers(1, 5)), draw(st.integers(1, 4))
    ranks = st.integers(0, world - 1)
    owners = {op.name: tuple(draw(ranks) for _ in range(chunks)) for op in graph.operators}
    if draw(st.booleans()):  # data parallel: where buckets have the most members
        owners = dict.fromkeys(owners, tuple(chunk % world for chunk in range(chunks)))
    placement = place(owners, world)
    route = draw(st.sampled_from(["ring", "server"]))
    reductions = buckets_of(graph, placement, route, draw(st.sampled_from([1, 24, 1 << 40])))
    pieces = draw(st.sampled_from([0, 1, 2, 5]))
    weights = draw(st.dictionaries(ranks, st.sampled_from([1.0, 1.0, 0.3, 2.5]), min_size=1))
    rounds, whole = draw(st.sampled_from([1, 1, 2, 5])), draw(st.booleans())
    cut = tuple(
        cut_shares(each, weights, rounds, bounds(each, graph) if whole else ()) if each.route == "server" else ()
        for each in reductions
    )
    shared = zip(reductions, cut, strict=True)
    return graph, placement, tuple(replace(each, piece_elements=pieces, shares=shares) for each, shares in shared)
