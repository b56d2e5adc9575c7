"""What plain processes would do on the nodes of a plan."""

from types import SimpleNamespace
from typing import Any

import pytest

from nfold.core.cluster import Channel, Cluster, Node
from nfold.verbs.results.summary import RunOutcome, alone_samples_per_s, judged_change

LOCAL = Channel(latency_s=0.0, bandwidth_bytes_per_s=1e9, origin="declared")


def profile(step_s: float) -> Any:
    """Of batches of 100: 10 ms of reading, 10 ms of updating, and the rest."""
    update = SimpleNamespace(median_s=0.01)
    return SimpleNamespace(
        whole_s=lambda batch: (0.0, step_s - 0.02), update=update, load_s=lambda samples, speed: 1e-4 * samples / speed
    )


def samples_per_s(nodes: list[str], measured: float | None = None, **speeds: tuple[float, float]) -> float:
    """Nodes by name: (cores, speed). A step takes 1 s with one thread, 0.5 s with two."""
    found = (
        Node(name=name, cores=cores, speed=speed, memory_bytes=1, local=LOCAL)
        for name, (cores, speed) in speeds.items()
    )
    known: Any = SimpleNamespace(profiles={1: profile(1.0), 2: profile(0.5)}, cluster=Cluster(nodes=tuple(found)))
    plan: Any = SimpleNamespace(nodes=tuple(nodes), batch_size=100)
    return alone_samples_per_s(known, plan, measured)


def changed(*first_steps: int) -> list[Any]:
    return [(SimpleNamespace(next_step=step), float(step)) for step in first_steps]


@pytest.mark.parametrize(
    ("changes", "judged"),
    [
        ([], None),
        (changed(100), 100),
        (changed(100, 400), 400),
        (changed(100, 995), 100),
        (changed(100, 103, 995), 103),
        (changed(995), None),
    ],
)
def test_a_run_is_judged_from_the_last_change_that_lasted(changes: list[Any], judged: int | None) -> None:
    change, at_s = judged_change(RunOutcome(last_step=1000, changes=changes))
    assert (change and change.next_step, at_s) == (judged, float(judged or 0))


def test_each_node_in_use_counts_once_with_its_cores_and_its_speed() -> None:
    cluster = {"a": (2.0, 1.0), "b": (2.0, 0.5), "c": (1.0, 1.0), "d": (0.25, 0.25)}
    assert samples_per_s(["a", "a"], **cluster) == pytest.approx(200)
    assert samples_per_s(["a", "b", "c", "d"], **cluster) == pytest.approx(200 + 100 + 100 + 25)


def test_what_was_measured_on_the_first_node_scales_all() -> None:
    cluster = {"a": (1.0, 0.5), "b": (1.0, 1.0)}
    assert samples_per_s(["a", "b"], 40.0, **cluster) == pytest.approx(40 + 80)
