"""Planning: what is refused and why, what is chosen, and that the figures are what the messages add up to."""

import re
from dataclasses import replace

import pytest
from grids import chain, channel, facts, model, parameter, profile
from hypothesis import given, settings
from hypothesis import strategies as st

from nfold.core import codec
from nfold.core.chunks import chunk_sizes
from nfold.core.cluster import Cluster, Node
from nfold.core.plan import Plan, Prediction, Unpredicted
from nfold.core.profile import Timing
from nfold.errors import PlanError
from nfold.planning.asynchronous.asynchronous_strategies import ASYNCHRONOUS
from nfold.planning.choosing import search
from nfold.planning.choosing.candidates import simulate_proposal
from nfold.planning.choosing.comparing_candidates import TIE
from nfold.planning.choosing.proposals import Answers
from nfold.planning.choosing.search import plan
from nfold.planning.choosing.strategies import STRATEGIES, STRATEGY_NAMES, named
from nfold.planning.choosing.wishes import check
from nfold.planning.inputs.facts import Facts
from nfold.planning.reductions.buckets import bounds
from nfold.planning.reductions.data_parallel import even_owners
from nfold.planning.scheduling.segments import INPUTS

pytestmark = pytest.mark.long

GRAPH = chain(1000, 300, 7)
WHOLE = chain(100, 30, update_scope="model")
UNCUT = chain(10, indivisible="the loss is no mean over samples")


def slow_network(graph, workers=2, **fields) -> Facts:
    """One node whose ranks would be quicker alone."""
    node = Node(name="box", cores=16.0, memory_bytes=1 << 40, local=channel(1e3, latency_s=1.0))
    return facts(graph, workers, cluster=Cluster(nodes=(node,)), **fields)


def forced(question: Facts, strategy: str) -> Plan:
    """A plan where nothing is asked of those that lose."""
    return plan(question, strategy, among=(named(strategy),))


# What is refused


@pytest.mark.parametrize(
    ("question", "strategy", "message"),
    [
        (
            facts(GRAPH, 2),
            "rong",
            r"unknown strategy 'rong'. Use one of: single, ring, ps, weighted, pipeline, hybrid, hypergraph, ps-async, "
            r"ssp, auto$",
        ),
        (facts(GRAPH, 0, nodes=("box",)), "auto", r"-n 0: a job needs at least 1 worker"),
        (
            facts(GRAPH, 2, 3),
            "ps",
            r"--servers 3 with -n 2: more servers than workers cannot help, since as many already have one link "
            r"for each worker's. Ask for 2 at most.",
        ),
        (facts(GRAPH, 2, -1), "ps", r"--servers -1 with -n 2: .* Ask for 2 at most."),
        (facts(GRAPH, 2, 1), "ring", r"--servers 1 needs --strategy ps, weighted, ps-async or ssp, not ring"),
        (facts(GRAPH, 1, 1), "single", r"--servers 1 needs --strategy ps, weighted, ps-async or ssp, not single"),
        (
            facts(GRAPH, 2),
            "single",
            r"--strategy single runs on one worker, but -n asks for 2: one of the two has to go",
        ),
        (
            facts(GRAPH, 4, chunks=3),
            "ring",
            r"4 workers cannot share 3 chunks: --strategy ring .*\. Use --chunks 4, --strategy pipeline or --strategy",
        ),
        (
            facts(GRAPH, 4, batch_size=3),
            "ring",
            r"a batch of 3 samples cannot be cut into 4 chunks, only into 3 or fewer: .*, or a larger batch. Use "
            r"--strategy pipeline",
        ),
        (
            facts(GRAPH, 4, batch_size=4),
            "ring",
            r"a batch of 4 samples fills 2 of 4 chunks, since each has two samples or more \(it was not tried on one "
            r"alone\), so 2 of 4 workers would never have any; 2 at most can share it. Use --strategy pipeline, "
            r"--strategy hybrid or -n",
        ),
        (
            facts(GRAPH, 2, batch_size=96, chunks=96),
            "ps",
            r"a batch of 96 samples fills 48 of 96 chunks, .*, so 1 of 2 workers .* Use --chunks 2, ",
        ),
        (
            facts(UNCUT, 2),
            "ring",
            r"the batch cannot be cut into 2 chunks: the loss is no mean over samples. Use --strategy "
            r"pipeline, --strategy hypergraph or -n 1.",
        ),
        (facts(UNCUT, 1, chunks=2), "single", r"cannot be cut into 2 chunks: the loss is no mean over samples"),
        (
            facts(WHOLE, 2),
            "ps",
            r"--strategy ps: the optimizer must see all parameters at once, so its work .*. Use --strategy ring",
        ),
        (
            facts(replace(WHOLE, unseen_update="mine.py:7 uses 'norm', which did not run"), 2),
            "ps",
            r"ps: the optimizer may look at all parameters at once \(mine.py:7 uses 'norm', .*\), so its",
        ),
        (
            facts(WHOLE, 2, 1),
            "ps",
            r"the optimizer must see all .* separate servers. Use --servers 0 --strategy ring",
        ),
        (
            facts(WHOLE, 2, 1),
            "auto",
            r"no strategy can run here. single: one worker has nothing to send to a server; ring: a ring has no "
            r"servers; ps: the optimizer must see all .*. Use --servers 0.",
        ),
    ],
)
def test_wishes_that_make_no_sense(question, strategy, message):
    with pytest.raises(PlanError, match=message) as caught:
        plan(question, strategy)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(("batch_size", "chunks"), [(4, None), (5, None), (8, 8)])
def test_whoever_is_chosen_has_samples_of_every_full_batch(batch_size, chunks):
    chosen = plan(facts(GRAPH, 4, batch_size=batch_size, chunks=chunks))
    sizes = chunk_sizes(batch_size, chosen.chunks)
    for rank in range(chosen.workers):
        columns = zip(sizes, *chosen.placement.owners.values(), strict=True)
        assert any(size for size, *owners in columns if rank in owners), chosen.strategy


FEW_CHUNKS = {
    "one chunk was asked for": (facts(GRAPH, 3, chunks=1), "3 workers cannot share 1 chunk"),
    "the batch cannot be cut": (facts(UNCUT, 2), "the batch cannot be cut into chunks: the loss is no mean over"),
    "there are few samples": (facts(GRAPH, 3, batch_size=2), "3 workers cannot share a batch of 2 samples"),
}
"""Questions with fewer chunks than workers, and why data parallelism cannot answer them."""


@pytest.mark.parametrize("strategy", ["pipeline", "hypergraph", "auto"])
@pytest.mark.parametrize("case", FEW_CHUNKS)
def test_fewer_chunks_than_workers_are_enough_where_operators_are_placed(case, strategy):
    question, why = FEW_CHUNKS[case]
    chosen = plan(question, strategy)
    assert chosen.chunks < question.workers
    assert chosen.strategy == strategy or strategy == "auto"
    if strategy != "auto":
        assert chosen.workers == question.workers
        busy = {rank for ranks in chosen.placement.owners.values() for rank in ranks}
        # A chunk of two samples is little work: to send fewer bytes a division may leave workers out.
        assert busy == {*range(question.workers)} or (
            strategy == "hypergraph" and question.batch_size == 2 and len(busy) > 1
        )
    for loser in chosen.rejected:
        if loser.strategy in ("ring", "ps", "weighted", "ps-async", "ssp"):
            assert loser.why.startswith(why), loser
    assert {"ring", "ps", "weighted"} <= {loser.strategy for loser in chosen.rejected}


def test_a_hybrid_shares_two_chunks_among_stages_and_no_single_one():
    chosen = plan(facts(GRAPH, 3, chunks=2), "hybrid")
    assert (chosen.chunks, chosen.workers) == (2, 3)
    with pytest.raises(PlanError, match=r"hybrid: its stages share chunks, and there is 1\. Use --chunks"):
        plan(facts(GRAPH, 3, chunks=1), "hybrid")


def test_more_ranks_than_cells_are_told_in_cells():
    with pytest.raises(PlanError, match=r"hypergraph: \d+ operators and 1 chunk are \d+ cells, too few for 9 workers"):
        plan(facts(GRAPH, 9, chunks=1), "hypergraph")


@pytest.mark.parametrize("strategy", ["ring", "auto"])
def test_what_can_run_passes_the_check(strategy):
    check(facts(GRAPH, 2), strategy)
    check(facts(GRAPH, 16), strategy)


def test_too_little_memory_is_said_with_numbers():
    node = Node(name="tiny", cores=16.0, memory_bytes=1 << 30, local=channel())
    question = facts(
        GRAPH,
        2,
        cluster=Cluster(nodes=(node,)),
        nodes=("tiny",) * 2,
        profiles={1: profile(GRAPH, base_bytes=768 << 20)},
    )
    with pytest.raises(PlanError, match=r"--strategy ring: 2 ranks need 1537 MiB on tiny, which has 1024 MiB \("):
        plan(question, "ring")
    chosen = plan(question, "auto")
    assert chosen.strategy == "single", "one process fits where two do not"
    assert chosen.notes[0].startswith(
        "only 1 of 2 workers train, since nothing can run on 2: ring: 2 ranks need 1537 MiB on tiny"
    )
    predicted = [loser for loser in chosen.rejected if isinstance(loser.predicted, Prediction)]
    assert {loser.strategy: loser.why[:25] for loser in predicted} == dict.fromkeys(
        ("ring", "ps", "weighted", "pipeline", "hybrid"), "2 ranks need 1537 MiB on "
    )


def test_memory_that_nothing_fits_lists_every_strategy():
    node = Node(name="box", cores=16.0, memory_bytes=1, local=channel())
    with pytest.raises(PlanError, match=r"no strategy can run here. single: 1 rank needs .*; ring: .*; ps: "):
        plan(facts(GRAPH, 2, cluster=Cluster(nodes=(node,))), "auto")


# What is chosen


def test_names_are_those_that_users_type():
    names = ("single", "ring", "ps", "weighted", "pipeline", "hybrid", "hypergraph", "ps-async", "ssp", "auto")
    assert names == STRATEGY_NAMES
    assert [named(strategy.name) for strategy in STRATEGIES] == list(STRATEGIES)


def test_a_forced_strategy_keeps_why_the_others_lost():
    chosen = plan(slow_network(GRAPH), "ring")
    assert chosen.strategy == "ring"
    assert {loser.strategy for loser in chosen.rejected} == {*STRATEGY_NAMES} - {"ring", "auto"}
    single = next(loser for loser in chosen.rejected if loser.strategy == "single")
    ratio = chosen.predicted.step_s / single.predicted.step_s
    assert single.why == f"predicted {ratio:.2f}x as fast, but ring was asked for"


def test_auto_keeps_by_how_much_the_others_lost():
    chosen = plan(slow_network(GRAPH), "auto")
    assert chosen.strategy == "single", "a second of latency is dearer than 32 samples"
    for loser in (loser for loser in chosen.rejected if loser.strategy in ("ring", "ps", "weighted")):
        ratio = loser.predicted.step_s / chosen.predicted.step_s
        assert loser.why.startswith(f"predicted {ratio:.2f}x the step time of single on 1 of 2 workers, since 9")
        assert loser.why.endswith("% of it would be waiting for messages")


def test_workers_that_auto_leaves_idle_are_told_with_what_was_predicted_for_few_and_for_all():
    question = slow_network(GRAPH, workers=3)
    found = plan(question)
    assert (found.strategy, found.workers) == ("single", 1)
    (note,) = found.notes
    (name,) = re.findall(r"Use --strategy (\w+) to have all", note)
    best = next(each for each in found.rejected if each.strategy == name)
    assert plan(question, name).placement.working == (0, 1, 2)
    waiting = best.predicted.exposed_communication_s / best.predicted.step_s
    assert note == (
        f"only 1 of 3 workers train: a step is predicted to take {1e3 * found.predicted.step_s:.1f} ms on 1 (single) "
        f"and {1e3 * best.predicted.step_s:.1f} ms on 3 ({best.strategy}, {waiting:.0%} of it waiting for messages). "
        f"Use --strategy {best.strategy} to have all."
    )
    assert waiting > 0.5
    assert plan(question, "ring").notes == ()
    assert plan(facts(GRAPH, 3)).notes == (), "nobody is idle"


def test_a_strategy_that_cannot_be_used_is_kept_without_a_prediction():
    chosen = plan(facts(WHOLE, 2), "ring")
    objection = next(loser for loser in chosen.rejected if loser.strategy == "ps")
    assert objection.predicted == Unpredicted(), "an object, but without figures"
    assert codec.loads(Plan, codec.dumps(chosen)) == chosen
    assert "must see all parameters at once" in objection.why


def test_dedicated_servers_leave_only_strategies_that_use_them():
    chosen = plan(facts(GRAPH, 2, 1), "auto")
    assert {
        chosen.strategy,
        *(loser.strategy for loser in chosen.rejected if isinstance(loser.predicted, Prediction)),
    } == {"ps", "weighted"}


@settings(max_examples=8, deadline=None)
@given(
    st.integers(1, 4),
    st.sampled_from([1e4, 1e6, 1e9]),
    st.sampled_from([0.0, 1e-3, 1.0]),
    st.lists(st.integers(1, 3000), min_size=1, max_size=3),
)
def test_auto_is_never_predicted_slower_than_another(workers, bandwidth, latency_s, sizes):
    node = Node(name="box", cores=4.0, memory_bytes=1 << 40, local=channel(bandwidth, latency_s))
    question = facts(chain(*sizes), workers, cluster=Cluster(nodes=(node,)))
    chosen = plan(question, "auto")
    names = ["ring", "ps", "pipeline", "hybrid"] if workers > 1 else ["ring", "ps", "single"]
    able = [name for name in names if named(name).accepts(question) is None]
    assert all(chosen.predicted.step_s <= forced(question, name).predicted.step_s for name in able)
    assert all(
        chosen.predicted.step_s <= loser.predicted.step_s
        for loser in chosen.rejected
        if isinstance(loser.predicted, Prediction)
    )


def test_equal_questions_get_equal_plans():
    assert plan(facts(GRAPH, 3)) == plan(facts(GRAPH, 3))


def dear_network(**fields) -> Facts:
    """Heavy parameters, light activations and links of 1 MB/s: data parallelism sends far more than a pipeline."""
    node = Node(name="box", cores=16.0, memory_bytes=1 << 40, local=channel(1e6))
    return facts(chain(100_000, 300_000, 200_000, 400_000), 2, cluster=Cluster(nodes=(node,)), **fields)


def test_heavy_parameters_on_slow_links_make_a_pipeline():
    chosen = plan(dear_network(batch_size=64))
    ring = next(loser for loser in chosen.rejected if loser.strategy == "ring")
    assert chosen.strategy in ("pipeline", "hybrid", "hypergraph")
    assert chosen.predicted.sent_bytes_per_step < 0.01 * ring.predicted.sent_bytes_per_step
    assert chosen.is_undominated
    assert not ring.is_undominated, "it takes longer, sends more and keeps more"


def test_what_nobody_beats_in_everything_is_kept_with_its_chunks():
    chosen = plan(dear_network(batch_size=64), "ring")
    shown = [(chosen.predicted, chosen.is_undominated)]
    shown += [
        (loser.predicted, loser.is_undominated) for loser in chosen.rejected if isinstance(loser.predicted, Prediction)
    ]
    points = [(each.step_s, each.sent_bytes_per_step, max(each.peak_memory_bytes)) for each, _ in shown]
    for (_, flag), point in zip(shown, points, strict=True):
        beaten = any(other != point and all(a <= b for a, b in zip(other, point, strict=True)) for other in points)
        assert flag is not beaten
    assert {loser.chunks for loser in chosen.rejected if isinstance(loser.predicted, Prediction)} >= {1, 2}


def test_fewest_bytes_and_least_memory_of_all_proposals_are_kept_however_slow_they_seem(monkeypatch):
    monkeypatch.setattr(search, "MOST_CANDIDATES", 1)
    answers = Answers(dear_network(batch_size=64))
    found = plan(answers.facts, answers=answers)
    shown = [each.predicted for each in (found, *found.rejected) if isinstance(each.predicted, Prediction)]
    every = [
        answers.estimated(strategy.name, proposal)[0].predicted
        for strategy in STRATEGIES
        if strategy.accepts(answers.facts) is None and strategy.name not in ASYNCHRONOUS
        for proposal in answers.proposals(strategy)
    ]
    assert len(every) > len(STRATEGIES)
    assert min(each.sent_bytes_per_step for each in shown) == min(each.sent_bytes_per_step for each in every)
    least = min(max(each.peak_memory_bytes) for each in every)
    assert min(max(each.peak_memory_bytes) for each in shown) <= least
    assert found.predicted.step_s <= TIE * min(each.step_s for each in shown)


def test_a_loser_says_what_it_would_save():
    chosen = plan(dear_network(batch_size=64), "ring")
    why = next(loser.why for loser in chosen.rejected if loser.strategy == "pipeline")
    assert why.startswith("predicted ")
    assert why.endswith("as fast, but ring was asked for")
    node = Node(name="box", cores=16.0, memory_bytes=1 << 40, local=channel(1e12, latency_s=0.0))
    quick = replace(dear_network(batch_size=64), cluster=Cluster(nodes=(node,)))
    why = next(loser.why for loser in plan(quick, "ring").rejected if loser.strategy == "pipeline")
    assert re.fullmatch(r"(predicted 1\.\d+x the step time of ring|a tie with ring), with 100% less bytes and .*", why)


def test_candidates_that_do_not_fit_are_dropped_one_by_one():
    graph = chain(100_000, 300_000, 200_000, 400_000)
    free = plan(dear_network(batch_size=64), "auto").predicted
    node = Node(name="box", cores=16.0, memory_bytes=2 * 8 * 700_000, local=channel(1e6))
    question = facts(graph, 2, cluster=Cluster(nodes=(node,)), batch_size=64)
    chosen = plan(question, "auto")
    assert chosen.strategy in ("pipeline", "hybrid", "hypergraph"), "each of two ranks can keep half of the model"
    assert sum(chosen.predicted.peak_memory_bytes) <= node.memory_bytes
    assert chosen.predicted.step_s >= free.step_s
    ring = next(loser for loser in chosen.rejected if loser.strategy == "ring")
    assert ring.why.startswith("2 ranks need ")


def test_a_batch_that_cannot_be_cut_can_still_be_computed_by_two():
    chosen = plan(facts(chain(10, 10, indivisible="the loss is no mean over samples"), 2), "pipeline")
    assert chosen.chunks == 1
    assert {rank for ranks in chosen.placement.owners.values() for rank in ranks} == {0, 1}


# What is sent


@pytest.mark.parametrize("workers", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("strategy", ["ring", "ps"])
def test_workers_among_themselves_send_twice_the_others_times_the_parameters(strategy, workers):
    chosen = forced(facts(GRAPH, workers), strategy)
    assert chosen.predicted.sent_bytes_per_step == 2 * (workers - 1) * GRAPH.parameter_bytes


@pytest.mark.parametrize(("workers", "servers"), [(1, 1), (2, 1), (2, 2), (3, 2), (5, 3)])
def test_dedicated_servers_make_it_twice_the_workers_times_the_parameters(workers, servers):
    chosen = forced(facts(GRAPH, workers, servers), "ps")
    assert chosen.predicted.sent_bytes_per_step == 2 * workers * GRAPH.parameter_bytes
    assert (chosen.workers, chosen.servers, chosen.world_size) == (workers, servers, workers + servers)


def test_one_process_sends_nothing():
    assert forced(facts(GRAPH, 1), "single").predicted.sent_bytes_per_step == 0


@pytest.mark.parametrize(("workers", "servers"), [(2, 0), (3, 2)])
def test_an_optimizer_that_needs_whole_parameters_gets_them(workers, servers):
    graph = chain(100, 30, 7, update_scope="parameter")
    chosen = forced(facts(graph, workers, servers), "ps")
    for reduction in chosen.reductions:
        cuts = set(bounds(reduction, graph))
        assert all({share.start, share.stop} <= cuts for share in reduction.shares)
        assert sum(share.stop - share.start for share in reduction.shares) == reduction.num_elements


def test_shares_of_a_bucket_smaller_than_its_servers_are_not_empty():
    chosen = forced(facts(chain(2), 3), "ps")
    (reduction,) = chosen.reductions
    assert [share.stop - share.start for share in reduction.shares] == [1, 1]
    assert chosen.predicted.sent_bytes_per_step == 2 * 2 * 8


def test_a_model_without_weights_can_still_be_planned():
    graph = model({"A": ("input",), "Loss": ("a", "target")}, (parameter("w", 3, "A", trainable=False),))
    assert plan(facts(graph, 2)).predicted.sent_bytes_per_step == 0


# Placements, loads and memory


@given(st.integers(1, 40), st.integers(1, 12))
def test_workers_get_runs_of_chunks_as_equal_as_possible(num_chunks, workers):
    owners = even_owners(num_chunks, workers)
    counts = [owners.count(rank) for rank in range(workers)]
    assert list(owners) == sorted(owners)
    assert max(counts) - min(counts) <= 1


def test_loads_are_the_compute_seconds_of_each_rank():
    chosen = forced(facts(GRAPH, 2, 1, chunks=4, batch_size=32), "ps")
    assert chosen.loads_s == pytest.approx((16 * 3e-3, 16 * 3e-3, 0.0))
    assert chosen.placement.owners["A"] == (0, 0, 1, 1)
    assert chosen.predicted.compute_s == pytest.approx(16 * 3e-3)


def test_where_threads_help_ranks_use_the_largest_measured_number_that_is_fair():
    profiles = {count: profile(GRAPH, 1e-3 / count, num_threads=count) for count in (1, 4, 8, 16)}
    question = facts(GRAPH, 3, profiles=profiles)
    assert forced(question, "ring").threads == (4, 4, 4)
    assert forced(facts(GRAPH, 1, profiles=question.profiles), "single").threads == (16,)
    assert forced(replace(question, profiles={8: question.profiles[8]}), "ring").threads == (8, 8, 8)


def passing(samples: int) -> float:
    """What the backward of one operator of the chain makes at most: two gradients of values, one of a weight."""
    gradients = {tensor.name: tensor.bytes_per_sample for tensor in GRAPH.tensors if tensor.requires_grad}
    weights = {parameter.name: parameter.num_bytes for parameter in GRAPH.parameters}
    return max(
        samples * sum(gradients.get(name, 0) for name in (*operator.inputs, *operator.outputs))
        + sum(weights[name] for name in operator.parameters)
        for operator in GRAPH.operators
    )


def test_memory_grows_with_what_a_rank_keeps():
    costly = {1: profile(GRAPH, base_bytes=10**6, optimizer_bytes=0, activation_bytes_per_sample=1000.0)}
    alone = forced(facts(GRAPH, 1, profiles=costly), "single").predicted.peak_memory_bytes
    shared = forced(facts(GRAPH, 2, profiles=costly), "ring").predicted.peak_memory_bytes
    total = GRAPH.parameter_bytes
    read = 2 * sum(tensor.bytes_per_sample for tensor in GRAPH.tensors if tensor.name in INPUTS)
    assert alone == (10**6 + 2 * total + 32 * (1000 + read) + passing(32),)
    assert shared == (10**6 + 2.5 * total + 16 * (1000 + read) + passing(16),) * 2, (
        "half of the bucket is received, to be added"
    )
    served = forced(facts(GRAPH, 2, 1, profiles=costly), "ps").predicted.peak_memory_bytes
    assert served == (10**6 + 2 * total + 16 * (1000 + read) + passing(16),) * 2 + (10**6 + 3 * total,), (
        "a server has values, gradients and a copy"
    )


def test_optimizer_state_lies_where_the_update_is_done():
    heavy = {1: profile(GRAPH, optimizer_bytes=8 * GRAPH.parameter_bytes)}
    worker, _, server = forced(facts(GRAPH, 2, 1, profiles=heavy), "ps").predicted.peak_memory_bytes
    read = 2 * sum(tensor.bytes_per_sample for tensor in GRAPH.tensors if tensor.name in INPUTS)
    assert server - worker == 8 * GRAPH.parameter_bytes + GRAPH.parameter_bytes - 16 * read - passing(16)


def test_memory_counts_the_largest_chunk_that_there_will_be():
    costly = {1: profile(GRAPH, activation_bytes_per_sample=1e6)}
    assert chunk_sizes(9, 4) == (3, 2, 2, 2)
    peaks = forced(facts(GRAPH, 4, batch_size=9, profiles=costly), "ring").predicted.peak_memory_bytes
    assert [peak >= 3e6 for peak in peaks] == [True, False, False, False]


def test_a_proposal_is_simulated_with_all_its_tasks():
    question = facts(GRAPH, 2)
    proposal = next(iter(named("ring").propose(question)))
    candidate = simulate_proposal(question, "ring", proposal)
    assert len(candidate.trace.spans) == sum(len(rank.tasks) for rank in candidate.scenario.schedule.ranks)
    assert candidate.predicted.step_s == max(candidate.trace.step_s)
    assert 0 <= candidate.predicted.exposed_communication_s <= candidate.predicted.step_s
    assert candidate.loads_s == pytest.approx((sum(question.profiles[1].whole_s(16)),) * 2)


# What is said of those that lost


def test_equal_predictions_are_called_a_tie():
    chosen = plan(facts(GRAPH, 2), "ring")
    assert {loser.strategy: loser.why for loser in chosen.rejected}["weighted"] == "a tie with ring"


def test_a_step_that_takes_no_time_can_be_compared():
    nothing = {1: profile(GRAPH, 0.0, update=Timing(median_s=0.0, spread_s=0.0, repeats=1))}
    chosen = plan(facts(GRAPH, 2, profiles=nothing))
    assert (chosen.strategy, chosen.predicted.step_s) == ("single", 0.0)
    ring = next(loser for loser in chosen.rejected if loser.strategy == "ring")
    assert ring.why.startswith("predicted many times the step time of single on 1 of 2 workers")


def test_more_rounds_are_taken_only_where_they_gain():
    question = facts(chain(400_000), 2, 2)
    chosen = forced(question, "ps")
    steps = [simulate_proposal(question, "ps", each).predicted.step_s for each in named("ps").propose(question)]
    fewest = next(each for each in named("ps").propose(question) if each.reductions == chosen.reductions)
    assert chosen.predicted.step_s <= 1.01 * min(steps)
    assert steps.index(chosen.predicted.step_s) == list(named("ps").propose(question)).index(fewest)
    assert all(step_s > 1.01 * min(steps) for step_s in steps[: steps.index(chosen.predicted.step_s)])
