"""What is wrong with each cluster, and what the report must say of it."""

from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True, slots=True)
class Machine:
    """One emulated node; what is left out is plenty."""

    cores: float = 0.3
    memory: str = "4 GiB"
    uplink: str = "1000 Mbit/s"
    downlink: str = "1000 Mbit/s"
    latency: str = "0 ms"


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """A cluster with something wrong, and the verdict that is right."""

    name: str
    program: str
    """FILE:function under benchmarks/programs."""
    machines: tuple[Machine, ...]
    expected: tuple[str, ...]
    """Verdict classes that are right; several where two causes were injected."""
    strategy: str = "ring"
    servers: int = 0
    chunks: int | None = None
    """None: what the strategy chooses."""
    places: tuple[str, ...] = ()
    """One of them must be part of the verdict's place, if there are any."""
    sub_causes: tuple[str, ...] = ()
    """One of them must be why, if there are any."""
    steps: int = 24
    bytes_per_s: float | None = None
    """Speed of the link that is named, as it is sold and shaped: headers included, as the verdict has it."""
    faults: tuple[str, ...] = field(default=())


def _even(count: int, **given: object) -> tuple[Machine, ...]:
    return (Machine(**given),) * count  # type: ignore[arg-type]


def _but(machines: tuple[Machine, ...], index: int, **given: object) -> tuple[Machine, ...]:
    fields = {name: getattr(machines[index], name) for name in Machine.__slots__} | given
    return (*machines[:index], Machine(**fields), *machines[index + 1 :])  # type: ignore[arg-type]


def _rate(mbit: float) -> float:
    return mbit * 1e6 / 8


SLOW_STEPS = 14
"""Where a step takes seconds."""


def _ends(node: int, side: str, count: int) -> tuple[str, ...]:
    """What may be named: between two nodes nobody can tell one's uplink from the other's downlink."""
    if count > 2:
        return (f"n{node} {side}",)
    return (f"n{node} {side}", f"n{1 - node} {'downlink' if side == 'uplink' else 'uplink'}")


def links() -> Iterator[Case]:
    """One slow direction of one node, or all links slow."""
    for strategy, count, node, side, mbit in (
        ("ring", 2, 1, "uplink", 20),
        ("ring", 3, 0, "downlink", 20),
        ("ring", 4, 2, "uplink", 40),
        ("ring", 4, 3, "downlink", 20),
        ("ring", 6, 5, "uplink", 30),
        ("ring", 6, 1, "downlink", 40),
        ("ps", 2, 0, "uplink", 20),
        ("ps", 3, 2, "downlink", 20),
        ("ps", 4, 1, "uplink", 30),
        ("ps", 4, 0, "downlink", 40),
        ("ps", 6, 3, "uplink", 30),
        ("ps", 6, 4, "downlink", 30),
    ):
        yield Case(
            name=f"{side} of n{node} at {mbit} Mbit/s, {strategy} x{count}",
            program="heavy.py",
            machines=_but(_even(count), node, **{side: f"{mbit} Mbit/s"}),
            strategy=strategy,
            expected=("link",),
            places=_ends(node, side, count),
            bytes_per_s=_rate(mbit),
            steps=SLOW_STEPS,
        )
    for strategy, count, mbit in (("ring", 2, 30), ("ring", 4, 50), ("ps", 4, 30)):
        yield Case(
            name=f"all links at {mbit} Mbit/s, {strategy} x{count}",
            program="heavy.py",
            machines=_even(count, uplink=f"{mbit} Mbit/s", downlink=f"{mbit} Mbit/s"),
            strategy=strategy,
            expected=("link",),
            bytes_per_s=_rate(mbit),
            steps=SLOW_STEPS,
        )


def stragglers() -> Iterator[Case]:
    """One node with less of a processor."""
    for strategy, count, node, share in (
        ("ring", 2, 1, 0.1),
        ("ring", 3, 0, 0.1),
        ("ring", 4, 2, 0.15),
        ("ring", 6, 5, 0.1),
        ("ps", 2, 0, 0.1),
        ("ps", 4, 3, 0.1),
        ("ps", 6, 2, 0.15),
    ):
        yield Case(
            name=f"n{node} with {share} cores, {strategy} x{count}",
            program="resnet.py",
            machines=_but(_even(count), node, cores=share),
            strategy=strategy,
            expected=("peer wait",),
            places=(f"n{node}",),
            sub_causes=("quota",),
        )
    for strategy, count, node in (("ring", 4, 1), ("ps", 3, 2)):
        yield Case(
            name=f"n{node} slows down to a third, {strategy} x{count}",
            program="resnet.py",
            machines=_even(count),
            strategy=strategy,
            expected=("peer wait",),
            places=(f"n{node}",),
            sub_causes=("quota",),
            faults=(f"slow n{node} 0.33@1s",),
        )
    for strategy, count in (("ring", 3), ("ps", 2)):
        yield Case(
            name=f"items that take 8 ms on n1, {strategy} x{count}",
            program="slow_input.py:slow_on_n1",
            machines=_even(count),
            strategy=strategy,
            expected=("peer wait",),
            places=("n1",),
            sub_causes=("input",),
        )
    for strategy, count, chunks in (("ring", 2, 3), ("ps", 3, 4)):
        yield Case(
            name=f"{chunks} chunks for {count} workers, {strategy}",
            program="resnet.py",
            machines=_even(count),
            strategy=strategy,
            chunks=chunks,
            expected=("peer wait",),
            places=("n0",),
            sub_causes=("more samples",),
        )


def servers() -> Iterator[Case]:
    """One server for many workers: all of them reach it through one link, or it is too slow to sum."""
    for count, mbit in ((4, 100), (6, 100), (6, 50)):
        yield Case(
            name=f"incast at one server, {count} workers at {mbit} Mbit/s",
            program="heavy.py",
            machines=_even(count + 1, uplink=f"{mbit} Mbit/s", downlink=f"{mbit} Mbit/s"),
            strategy="ps",
            servers=1,
            expected=("server",),
            places=(f"n{count}",),
            sub_causes=("incast",),
            bytes_per_s=_rate(mbit),
            steps=SLOW_STEPS,
        )
    for count, share in ((3, 0.02), (4, 0.02)):
        yield Case(
            name=f"a server with {share} cores for {count} workers",
            program="heavy.py",
            machines=_but(_even(count + 1), count, cores=share),
            strategy="ps",
            servers=1,
            expected=("server",),
            places=(f"n{count}",),
            sub_causes=("summing",),
            steps=SLOW_STEPS,
        )


def others() -> Iterator[Case]:
    """Compute, latency, transport, input."""
    for strategy, count in (("ring", 2), ("ring", 4), ("ps", 4)):
        yield Case(
            name=f"plenty of network, {strategy} x{count}",
            program="resnet.py",
            machines=_even(count),
            strategy=strategy,
            expected=("compute",),
        )
    for strategy, count, latency in (("ring", 4, "10 ms"), ("ring", 6, "5 ms"), ("ps", 4, "20 ms")):
        yield Case(
            name=f"latency {latency}, {strategy} x{count}",
            program="small.py",
            machines=_even(count, latency=latency),
            strategy=strategy,
            expected=("latency",),
        )
    for strategy, count in (("ring", 4), ("ring", 6), ("ps", 4)):
        yield Case(
            name=f"too little processor for fast links, {strategy} x{count}",
            program="heavy.py:bytes_alone",
            machines=_even(count, cores=0.1, uplink="4000 Mbit/s", downlink="4000 Mbit/s"),
            strategy=strategy,
            expected=("transport",),
        )
    for function, strategy, count in (("slow", "ring", 2), ("slower", "ring", 4), ("slower", "ps", 3)):
        yield Case(
            name=f"{function} input, {strategy} x{count}",
            program=f"slow_input.py:{function}",
            machines=_even(count),
            strategy=strategy,
            expected=("input",),
        )


def few() -> Iterator[Case]:
    """Too few samples for what a step costs anyway."""
    for function, cores in (("two_samples", 0.3), ("two_samples", 1.0), ("three_samples", 0.5)):
        yield Case(
            name=f"{function.replace('_', ' ')} a step, one worker of {cores} cores",
            program=f"fixed_costs.py:{function}",
            machines=_even(1, cores=cores),
            strategy="single",
            expected=("small batch",),
        )


def memory() -> Iterator[Case]:
    """One node whose memory its rank nearly fills: about 390 MiB, most of it the interpreter with torch in it.

    Less than 415 is refused: so much is predicted.
    """
    for strategy, count, node in (("ring", 3, 1), ("ring", 4, 3), ("ps", 2, 0)):
        yield Case(
            name=f"n{node} with 425 MiB, {strategy} x{count}",
            program="resnet.py",
            machines=_but(_even(count), node, memory="425 MiB"),
            strategy=strategy,
            expected=("memory",),
            places=(f"n{node}",),
        )


def both() -> Iterator[Case]:
    """Two causes at once: the larger one must be on top."""
    machines = _but(_even(4), 1, uplink="20 Mbit/s")
    yield Case(
        name="slow uplink of n1 and a slower n2, ring x4",
        program="heavy.py",
        machines=_but(machines, 2, cores=0.2),
        expected=("link",),
        places=("n1 uplink",),
        bytes_per_s=_rate(20),
        steps=SLOW_STEPS,
    )
    yield Case(
        name="slow n2 and links of 300 Mbit/s, ring x4",
        program="resnet.py",
        machines=_but(_even(4, uplink="300 Mbit/s", downlink="300 Mbit/s"), 2, cores=0.1),
        expected=("peer wait",),
        places=("n2",),
    )
    yield Case(
        name="slow downlink of n0 and slow n3, ps x4",
        program="heavy.py",
        machines=_but(_but(_even(4), 0, downlink="15 Mbit/s"), 3, cores=0.2),
        strategy="ps",
        expected=("link",),
        places=("n0 downlink",),
        bytes_per_s=_rate(15),
        steps=SLOW_STEPS,
    )


def asynchronous() -> Iterator[Case]:
    """No worker waits for another, but for bytes, round trips and, where staleness is bounded, the slowest clock."""
    yield Case(
        name="uplink of n1 at 20 Mbit/s, ps-async x3",
        program="heavy.py",
        machines=_but(_even(3), 1, uplink="20 Mbit/s"),
        strategy="ps-async",
        expected=("link",),
        places=("n1 uplink",),
        bytes_per_s=_rate(20),
        steps=SLOW_STEPS,
    )
    yield Case(
        name="latency 20 ms, ssp x3",
        program="small.py",
        machines=_even(3, latency="20 ms"),
        strategy="ssp",
        expected=("latency",),
    )


CASES = (*links(), *stragglers(), *servers(), *others(), *few(), *memory(), *both(), *asynchronous())
