"""Asynchronous plans: what is refused, what is promised of time and bytes, and how old gradients get."""

from dataclasses import replace

import pytest
from grids import channel, facts, model, parameter, profile

from nfold.core.cluster import Cluster, Node
from nfold.core.plan import Asynchrony
from nfold.core.profile import Timing
from nfold.errors import PlanError
from nfold.planning.asynchronous.asynchronous_simulation import Question, drift
from nfold.planning.asynchronous.asynchronous_strategies import NOT_COMPARED, check_staleness, serving_ranks
from nfold.planning.asynchronous.staleness import REPLY_BYTES, REQUEST_BYTES
from nfold.planning.choosing.search import plan
from nfold.planning.choosing.strategies import named

pytestmark = pytest.mark.long

GRAPH = model({"A": ("input",), "B": ("a", "target")}, (parameter("w", 600, "A"), parameter("v", 600, "B")))
SLICE_S = 1.0


def forced(asked, strategy):
    """A plan where nothing is asked of the others."""
    return plan(asked, strategy, among=(named(strategy),))


def question(speeds=(1.0, 1.0), bound=None, **fields):
    """Workers on nodes of their own, whose links take no time to speak of."""
    quick = channel(1e12, 0.0)
    nodes = [
        Node(name=f"n{i}", cores=1.0, memory_bytes=1 << 40, speed=speed, local=quick, uplink=quick, downlink=quick)
        for i, speed in enumerate(speeds)
    ]
    given = {
        "workers": len(speeds),
        "asynchrony": Asynchrony(bound=bound),
        "cluster": Cluster(nodes=tuple(nodes)),
        "nodes": tuple(node.name for node in nodes),
        "threads": (1,) * len(speeds),
        "owners": tuple(range(len(speeds))),
        "batch_size": 8 * len(speeds),
        "reductions": forced(facts(GRAPH, len(speeds)), "ps-async").reductions,
        "statistics_bytes": 0,
        "compute_s": lambda rank, size: SLICE_S,
        "load_s_per_sample": 0.0,
        "load_wait": 0.0,
        "update_s": 0.0,
    }
    return Question(**{**given, **fields})


@pytest.mark.parametrize("bound", [None, 0, 3])
def test_equal_workers_take_a_slice_each(bound):
    played = drift(question((1.0, 1.0, 1.0), bound))
    assert played.step_s == pytest.approx(SLICE_S, rel=1e-3)
    assert played.compute_s == pytest.approx(SLICE_S)
    assert max(played.staleness) <= 2


def test_without_a_bound_nobody_waits_for_a_slow_worker():
    played = drift(question((1.0, 1.0, 0.25)))
    assert played.step_s == pytest.approx(3 / (1 + 1 + 0.25), rel=0.04), "slices of a step over what all do in a second"
    assert max(played.staleness) >= 8, "the others update the shard eight times meanwhile"


def test_each_worker_is_known_by_what_it_takes_for_a_sample():
    played = drift(question((1.0, 1.0, 0.25)))
    assert played.sample_s == pytest.approx((SLICE_S / 8, SLICE_S / 8, 4 * SLICE_S / 8))


def test_each_shard_is_known_by_what_it_takes_for_a_gradient():
    beside_computing = drift(question((1.0, 1.0), update_s=0.2)).update_s
    assert beside_computing.keys() == {0, 1}
    assert all(0.1 - 1e-9 <= seconds <= 0.2 + 1e-9 for seconds in beside_computing.values()), "half, on a shared core"


def test_a_permanently_slow_worker_sets_the_pace_whatever_the_bound():
    for bound in (0, 2):
        assert drift(question((1.0, 1.0, 0.25), bound)).step_s == pytest.approx(4 * SLICE_S, rel=0.05)


def test_who_may_not_run_ahead_waits_for_the_slowest():
    assert drift(question((1.0, 1.0, 0.25), 0)).waits_s == pytest.approx((3 * SLICE_S, 3 * SLICE_S, 0), abs=0.1)
    assert drift(question((1.0, 1.0, 0.25))).waits_s == pytest.approx((0, 0, 0), abs=0.01)


def test_without_staleness_every_gradient_is_fresh():
    assert set(drift(question((1.0, 0.5, 0.25), 0)).staleness) == {0}


def test_a_slow_update_is_the_pace_of_the_server():
    played = drift(question((1.0, 1.0), update_s=4.0))
    assert played.step_s >= 4.0, "two updates of half the parameters, each two seconds, beside computing"


def test_equal_questions_get_equal_answers():
    assert drift(question((1.0, 0.7, 0.3), 1)) == drift(question((1.0, 0.7, 0.3), 1))


@pytest.mark.parametrize(("workers", "servers"), [(2, 0), (3, 0), (1, 1), (2, 1), (3, 2)])
@pytest.mark.parametrize("strategy", ["ps-async", "ssp"])
def test_bytes_are_a_gradient_and_the_values_for_each_slice(workers, servers, strategy):
    chosen = forced(facts(GRAPH, workers, servers, batch_size=30), strategy)
    head = 2 * REQUEST_BYTES + REPLY_BYTES
    remote = workers * servers if servers else workers * (workers - 1)
    whole = workers if servers else workers - 1
    assert chosen.predicted.sent_bytes_per_step == 2 * whole * GRAPH.parameter_bytes + remote * head
    assert serving_ranks(chosen.reductions) == tuple(range(workers, workers + servers) if servers else range(workers))
    assert chosen.asynchrony == Asynchrony(bound=None if strategy == "ps-async" else 3)


def beside_a_slow_one(slow_speed):
    """Three workers, the last on a slow node, and updates that take as long as computing."""
    link = channel(1e6, 0.0)
    nodes = [
        Node(name=f"n{i}", cores=1.0, memory_bytes=1 << 40, speed=speed, local=link, uplink=link, downlink=link)
        for i, speed in enumerate((1.0, 1.0, slow_speed))
    ]
    busy = profile(GRAPH, update=Timing(median_s=0.05, spread_s=0.0, repeats=1))
    names = tuple(node.name for node in nodes)
    return facts(GRAPH, 3, cluster=Cluster(nodes=tuple(nodes)), nodes=names, profiles={1: busy}, chunks=3)


def test_a_slow_worker_need_not_serve():
    asked = beside_a_slow_one(0.2)
    chosen = forced(asked, "ps-async")
    assert serving_ranks(chosen.reductions) == (0, 1)
    first, second = named("ps-async").propose(asked)
    assert serving_ranks(first.reductions) == (0, 1, 2)
    assert second.reductions == chosen.reductions


def test_all_serve_where_none_is_slow():
    (only,) = named("ps-async").propose(beside_a_slow_one(0.9))
    assert serving_ranks(only.reductions) == (0, 1, 2)


def test_they_are_taken_only_when_asked_for():
    chosen = plan(facts(GRAPH, 2), "auto")
    whys = {loser.strategy: loser.why for loser in chosen.rejected}
    assert whys["ps-async"] == whys["ssp"] == NOT_COMPARED
    assert chosen.asynchrony is None


def test_wishes_reach_the_plan():
    chosen = plan(replace(facts(GRAPH, 2), staleness=0, staleness_aware=True), "ssp")
    assert chosen.asynchrony == Asynchrony(bound=0, staleness_aware=True)


@pytest.mark.parametrize("strategy", ["ps-async", "ssp"])
def test_what_cannot_be_served_is_refused(strategy):
    with pytest.raises(PlanError, match=f"--strategy {strategy}: the optimizer must see all parameters at once"):
        plan(facts(replace(GRAPH, update_scope="model"), 2), strategy)
    with pytest.raises(PlanError, match=r"can be cut into 2 shares, which is fewer than --servers 3\. Use --servers 2"):
        plan(facts(replace(GRAPH, update_scope="parameter"), 3, 3), strategy)


@pytest.mark.parametrize(
    ("strategy", "staleness", "aware", "message"),
    [
        ("ring", 2, False, "--staleness 2 is the bound of --strategy ssp, not of ring"),
        ("ps-async", 0, False, "--staleness 0 is the bound of --strategy ssp, not of ps-async"),
        ("ssp", -1, False, "--staleness -1: it must be at least 0"),
        ("ps", None, True, "--staleness-aware is for gradients that may be old, as with --strategy ps-async or ssp"),
    ],
)
def test_wishes_that_make_no_sense(strategy, staleness, aware, message):
    with pytest.raises(PlanError, match=message):
        check_staleness(strategy, staleness, aware=aware)


def test_a_shard_needs_memory_of_its_own():
    costly = {1: profile(GRAPH, base_bytes=0)}
    served = forced(facts(GRAPH, 2, profiles=costly), "ps").predicted.peak_memory_bytes
    drifting = forced(facts(GRAPH, 2, profiles=costly), "ps-async").predicted.peak_memory_bytes
    assert min(drifting) >= min(served) + 4 * GRAPH.parameter_bytes // 2


@pytest.mark.parametrize(("strategy", "staleness"), [("ps-async", None), ("ssp", None), ("ssp", 1)])
def test_an_optimizer_that_cannot_weigh_a_gradient_is_refused(strategy, staleness):
    graph = replace(GRAPH, unweighable="a group of the optimizer has no learning rate `lr`")
    with pytest.raises(PlanError, match="has no learning rate `lr`, and each worker's gradient is applied with"):
        forced(facts(graph, 2, staleness=staleness), strategy)
    assert forced(facts(graph, 2, staleness=0), "ssp").strategy == "ssp", "a step's gradients are applied at once"
    assert forced(facts(graph, 1, staleness=staleness), strategy).workers == 1, "its gradient is the step's"
