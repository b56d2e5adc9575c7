"""A machine and what was measured on it, without either: for machines of the runtime that need no torch."""

from nfold.core.cluster import Channel, Cluster, Node
from nfold.core.graph import ModelGraph, Operator, Parameter, Tensor
from nfold.core.plan import Plan
from nfold.core.profile import ChunkTiming, OperatorProfile, Profile, Timing
from nfold.planning.choosing.search import plan
from nfold.planning.inputs.facts import Facts

BATCH_SIZE = 25


def profile_of(graph: ModelGraph) -> Profile:
    """A profile in which every operator takes a millisecond."""
    once = Timing(median_s=1e-3, spread_s=0.0, repeats=1)
    timing = ChunkTiming(chunk_size=8, forward=once, backward=once)
    return Profile(
        device_kind="cpu",
        num_threads=1,
        operators=tuple(
            OperatorProfile(operator=op.name, timings=(timing,), saved_bytes_per_sample=1.0) for op in graph.operators
        ),
        whole=(timing,),
        update=once,
        load_s_per_sample=0.0,
        parameter_bytes=graph.parameter_bytes,
        optimizer_bytes=0,
        activation_bytes_per_sample=0.0,
        base_bytes=0,
        peak_bytes=0,
    )


def cluster(*names: str) -> Cluster:
    """One quick machine, or some."""
    channel = Channel(latency_s=1e-5, bandwidth_bytes_per_s=1e9, origin="declared")
    nodes = (Node(name=name, cores=8.0, memory_bytes=1 << 40, local=channel) for name in names or ("box",))
    return Cluster(nodes=tuple(nodes))


def tensor(name: str, producer: str, *consumers: str) -> Tensor:
    return Tensor(name=name, producer=producer, consumers=consumers, bytes_per_sample=4.0, requires_grad=bool(producer))


GRAPH = ModelGraph(
    operators=(Operator(name="A", kind="op", inputs=("input", "target"), outputs=("loss",), parameters=("w",)),),
    tensors=(tensor("input", "", "A"), tensor("target", "", "A"), tensor("loss", "A")),
    parameters=(Parameter(name="w", num_elements=8, num_bytes=32, dtype="float32", trainable=True, users=("A",)),),
    capture="fx",
)
"""One operator with a weight."""


def a_plan(workers: int, strategy: str = "ring") -> Plan:
    """Plan for that graph on that machine."""
    facts = Facts(
        graph=GRAPH,
        profiles={1: profile_of(GRAPH)},
        cluster=cluster(),
        nodes=("box",) * workers,
        workers=workers,
        servers=0,
        batch_size=BATCH_SIZE,
    )
    return plan(facts, strategy)
