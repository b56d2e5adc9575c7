"""Whole schedules against closed forms."""

import pytest

from nfold.core.cluster import Channel
from nfold.core.tasks import Elements, OptimizerStep, Signal
from nfold.errors import ClusterError, InternalError

LATENCY, BANDWIDTH = 0.001, 1e6
"""Of every channel in conftest's nodes; a message between nodes pays the latency of both links."""


@pytest.fixture
def ring(send, receive):
    """Tasks of a ring pass of 2(n-1) rounds over n ranks, each message one n-th of the bytes."""

    def build(num_ranks, total_bytes):
        share = total_bytes // num_ranks
        ranks = {}
        for rank in range(num_ranks):
            tasks = []
            for round_index in range(2 * (num_ranks - 1)):
                after = (2 * round_index - 1,) if round_index else ()
                tasks.append(send(2 * round_index, (rank + 1) % num_ranks, share, after, tag=round_index))
                tasks.append(receive(2 * round_index + 1, (rank - 1) % num_ranks, share, tag=round_index))
            ranks[rank] = tasks
        return ranks

    return build


@pytest.mark.parametrize("num_ranks", [2, 3, 4, 7])
def test_ring_takes_its_bytes_and_its_latencies(ring, node, simulated, num_ranks):
    total = 420_000
    trace = simulated(ring(num_ranks, total), [node(f"n{rank}") for rank in range(num_ranks)])
    rounds = 2 * (num_ranks - 1)
    expected = rounds * (total / num_ranks / BANDWIDTH + 2 * LATENCY)
    assert trace.step_s == pytest.approx((expected,) * num_ranks)


def test_ring_within_a_node_pays_the_local_channel(ring, node, simulated):
    trace = simulated(ring(4, 400_000), [node("a")], where=["a"] * 4)
    assert max(trace.step_s) == pytest.approx(6 * (0.1 + LATENCY))


@pytest.mark.parametrize("num_workers", [1, 2, 5])
def test_incast_is_bound_by_the_servers_downlink(node, simulated, send, receive, num_workers):
    ranks = {rank: [send(0, num_workers, 100_000)] for rank in range(num_workers)}
    ranks[num_workers] = [receive(rank, rank, 100_000) for rank in range(num_workers)]
    trace = simulated(ranks, [node(f"n{rank}") for rank in range(num_workers + 1)])
    assert trace.step_s[num_workers] == pytest.approx(num_workers * 0.1 + 2 * LATENCY)


def test_pipeline_takes_chunks_plus_stages_minus_one(node, simulated, compute, send, receive):
    num_stages, num_chunks, seconds = 3, 5, 0.5
    free = Channel(latency_s=0.0, bandwidth_bytes_per_s=1e15, origin="declared")
    ranks = {}
    for rank in range(num_stages):
        tasks = []
        for chunk in range(num_chunks):
            first, last = rank == 0, rank == num_stages - 1
            tasks += [] if first else [receive(3 * chunk, rank - 1, 1, tag=chunk)]
            tasks += [compute(3 * chunk + 1, seconds, () if first else (3 * chunk,))]
            tasks += [] if last else [send(3 * chunk + 2, rank + 1, 1, (3 * chunk + 1,), tag=chunk)]
        ranks[rank] = tasks
    trace = simulated(ranks, [node(f"n{rank}", uplink=free, downlink=free) for rank in range(num_stages)])
    assert max(trace.step_s) == pytest.approx((num_chunks + num_stages - 1) * seconds)


def test_ranks_of_a_node_share_its_cores(node, simulated, compute):
    ranks = {rank: [compute(0, 1.0)] for rank in range(4)}
    assert simulated(ranks, [node("a", cores=2)], where=["a"] * 4).step_s == pytest.approx((2.0,) * 4)


def test_a_faster_node_takes_less(node, simulated, compute):
    assert simulated({0: [compute(0, 1.0)]}, [node("a", speed=4.0)]).step_s == (0.25,)


@pytest.mark.parametrize(("commits", "ends_s"), [(False, 0.302), (True, 0.402)])
def test_updates_of_a_committed_step_wait_for_all_messages(node, simulated, send, receive, commits, ends_s):
    """The first 100 kB come after 0.1 s, the others after 0.3; the update takes 0.1 s."""
    update = OptimizerStep(id=2, after=(0,), gradients=Elements("gradient", "b0", 0, 1)), 0.1
    ranks = {0: [receive(0, 1, 100_000), receive(1, 1, 200_000, tag=1), update]}
    ranks[1] = [send(0, 0, 100_000), send(1, 0, 200_000, tag=1)]
    trace = simulated(ranks, [node("a"), node("b")], commits=commits)
    assert trace.step_s[0] == pytest.approx(ends_s, abs=1e-6)


def test_messages_to_one_peer_queue_and_to_two_peers_do_not(node, simulated, send, receive):
    ranks = {
        0: [send(0, 1, 100_000, tag=0), send(1, 1, 100_000, tag=1), send(2, 2, 100_000, tag=2)],
        1: [receive(0, 0, 100_000, tag=0), receive(1, 0, 100_000, tag=1)],
        2: [receive(0, 0, 100_000, tag=2)],
    }
    trace = simulated(ranks, [node("a")], where=["a"] * 3)
    # Latency delays arrivals, not the sender: the second message pays it once.
    assert trace.step_s == pytest.approx((0.2, 0.2 + LATENCY, 0.1 + LATENCY))


def test_a_sum_waits_for_its_own_data(node, simulated, compute, send, receive):
    ranks = {0: [send(0, 1, 0)], 1: [compute(0, 3.0), receive(1, 0, 0, (0,))]}
    trace = simulated(ranks, [node("a"), node("b")])
    assert trace.step_s == (0.0, 3.0)


def test_a_signal_lets_communication_start_before_the_task_ends(node, simulated, compute, send, receive):
    signal = Signal(event=77, reduction="b0", fraction=0.25)
    ranks = {0: [compute(0, 4.0, signals=(signal,)), send(1, 1, 0, (77,))], 1: [receive(0, 0, 0)]}
    trace = simulated(ranks, [node("a"), node("b")])
    assert trace.step_s == pytest.approx((4.0, 1.0 + 2 * LATENCY))


def test_compute_tasks_keep_their_listed_order(node, simulated, compute, send, receive):
    ranks = {0: [receive(0, 1, 0), compute(1, 1.0, (0,)), compute(2, 1.0)], 1: [compute(0, 5.0), send(1, 0, 0, (0,))]}
    trace = simulated(
        ranks, [node("a", local=Channel(latency_s=0, bandwidth_bytes_per_s=1, origin="declared"))] * 1, where=["a", "a"]
    )
    assert [span.name for span in trace.spans if span.kind == "F" and span.rank == 0] == ["F1.0", "F2.0"]
    assert trace.step_s[0] == pytest.approx(7.0)


def test_loopback_takes_the_longer_of_wire_and_processor(node, simulated, send, receive):
    def seconds(cpu_s_per_byte, cores):
        local = Channel(latency_s=0, bandwidth_bytes_per_s=1e6, origin="declared", cpu_s_per_byte=cpu_s_per_byte)
        ranks = {
            rank: [send(0, rank + 1, 100_000) if rank % 2 == 0 else receive(0, rank - 1, 100_000)] for rank in range(4)
        }
        return max(simulated(ranks, [node("a", cores=cores, local=local)], where=["a"] * 4).step_s)

    assert seconds(0.5e-6, cores=1) == pytest.approx(
        0.1
    )  # two messages of 0.05 s processor work fit into the wire's time
    assert seconds(1e-6, cores=1) == pytest.approx(0.2)
    assert seconds(1e-6, cores=2) == pytest.approx(0.1)
    assert seconds(2e-6, cores=2) == pytest.approx(
        0.2
    )  # both ends of both messages work: four jobs' worth on two cores


def test_messages_take_processor_time_from_compute(node, simulated, compute, send, receive):
    wire = Channel(latency_s=0, bandwidth_bytes_per_s=1e9, origin="declared", cpu_s_per_message=0.2)
    ranks = {0: [send(0, 1, 1), compute(1, 1.0)], 1: [receive(0, 0, 1), compute(1, 1.0)]}
    trace = simulated(ranks, [node(name, cores=1, uplink=wire, downlink=wire) for name in "ab"])
    assert trace.step_s == pytest.approx((1.1, 1.1))


def test_one_thread_of_a_rank_works_for_all_its_messages(node, simulated, compute, send, receive):
    """However many cores it has, and beside what it computes."""
    wire = Channel(latency_s=0, bandwidth_bytes_per_s=1e9, origin="declared", cpu_s_per_message=0.2)
    nodes = [node(name, cores=8, uplink=wire, downlink=wire) for name in "abcd"]
    ranks = {0: [send(index, peer, 1, tag=index) for index, peer in enumerate((1, 2, 3, 1))] + [compute(4, 0.3)]}
    for rank in (1, 2, 3):
        ranks[rank] = [receive(index, 0, 1, tag=index) for index, peer in enumerate((1, 2, 3, 1)) if peer == rank]

    trace = simulated(ranks, nodes)

    assert trace.step_s[0] == pytest.approx(0.4)


def test_a_missing_link_is_named(node, simulated, send, receive):
    with pytest.raises(ClusterError, match=r"node b has no downlink, so rank 1 cannot talk .* declare the downlink"):
        simulated({0: [send(0, 1, 1)], 1: [receive(0, 0, 1)]}, [node("a"), node("b", downlink=None)])


def test_a_deadlock_names_its_tasks(node, simulated, compute, receive):
    ranks = {0: [compute(0, 1.0, (9,)), compute(1, 1.0)], 1: [receive(0, 0, 8, tag=5)]}
    with pytest.raises(InternalError) as caught:
        simulated(ranks, [node("a"), node("b")])
    message = str(caught.value)
    assert "3 tasks left" in message
    assert "rank 0: F0.0 waits for event 9" in message
    assert "rank 0: F1.0 waits for the compute lane" in message
    assert "rank 1: reduce b5 from 0 waits for tag 5 of rank 0" in message


def test_missing_seconds_are_said(node, compute):
    from nfold.core.cluster import Cluster
    from nfold.core.schedule import RankSchedule, Schedule
    from nfold.simulation import simulate

    schedule = Schedule(
        num_chunks=1, ranks=(RankSchedule(rank=0, segments=(), tasks=(compute(0, 1.0)[0],), num_events=1),)
    )
    with pytest.raises(InternalError, match=r"no seconds were given for F0\.0"):
        simulate(schedule, task_seconds={}, cluster=Cluster(nodes=(node("a"),)), nodes=("a",), threads=(1,))


def test_a_long_chain_of_receives_does_not_recurse(node, simulated, compute, send, receive):
    many = 3000
    ranks = {
        0: [send(index, 1, 1, tag=index) for index in range(many)],
        1: [compute(many, 100.0)]
        + [receive(index, 0, 1, (index - 1 if index else many,), tag=index) for index in range(many)],
    }
    assert simulated(ranks, [node("a")], where=["a", "a"]).step_s[1] == 100.0


@pytest.mark.parametrize(("num_ranks", "slowest"), [(2, 0.59), (8, 1.43), (64, 2.34)])
def test_unsteady_nodes_wait_for_the_slowest_of_as_many(node, simulated, compute, num_ranks, slowest):
    """The expected largest of n normal draws: 0.56, 1.42 and 2.35 standard deviations."""
    nodes = [node(f"n{rank}", unsteadiness=0.1) for rank in range(num_ranks)]
    trace = simulated({rank: [compute(0, 1.0)] for rank in range(num_ranks)}, nodes)
    assert max(trace.step_s) == pytest.approx(1 + 0.1 * slowest, abs=2e-3)
    assert sum(trace.step_s) / num_ranks == pytest.approx(1.0)


def test_what_varies_evens_out_over_the_chunks_of_a_step(node, simulated, compute):
    nodes = [node(f"n{rank}", unsteadiness=0.1) for rank in range(2)]
    tasks = [compute(chunk, 0.25, (chunk - 1,) if chunk else (), chunk=chunk) for chunk in range(4)]
    assert max(simulated(dict.fromkeys(range(2), tasks), nodes).step_s) == pytest.approx(1 + 0.1 * 0.59 / 2, abs=1e-3)


def test_every_step_costs_its_rank_processor_time_before_its_first_task(node, simulated, compute):
    nodes = [node("a", step_cpu_s=0.5), node("b", step_cpu_s=0.5, cores=0.5)]
    tasks = [compute(0, 1.0), compute(1, 1.0, (0,), chunk=1)]
    trace = simulated(dict.fromkeys(range(2), tasks), nodes)
    assert trace.step_s == pytest.approx((2.5, 3.0))
    assert [min(span.start_s for span in trace.spans if span.rank == rank) for rank in range(2)] == [0.5, 1.0]


def test_a_rank_without_tasks_holds_nobody_up(node, simulated, compute):
    nodes = [node("a", step_cpu_s=0.5), node("b", step_cpu_s=2.5)]
    assert simulated({0: [compute(0, 1.0)], 1: []}, nodes).step_s == pytest.approx((1.5, 0.0))


@pytest.mark.parametrize("work_s", [0.01, 0.02, 0.08, 0.4, 0.9])
def test_a_short_step_lasts_what_its_share_of_the_processor_says(node, simulated, compute, work_s):
    """One or more of them fit into a whole grant; in a row they do not."""
    trace = simulated({0: [compute(0, work_s)]}, [node("a", cores=0.25, quota_period_s=0.1)])
    assert trace.step_s[0] == pytest.approx(work_s, rel=0.1)
    assert [span.end_s - span.start_s for span in trace.spans] == [trace.step_s[0]]


def test_who_waits_for_a_disk_spends_no_quota(node, simulated, load):
    """Of 100 ms of reading no core has to do with 80: a tenth of a core is not the cause of those."""
    ranks = {0: [load(0, 0.1)]}
    twice = [node("a", cores=0.2, quota_period_s=0.01, speed=2.0)]
    assert simulated(ranks, twice, load_waits=(0.8,)).step_s[0] == pytest.approx(0.09, rel=0.1)


def test_who_has_nothing_to_do_does_not_say_how_many_steps_are_played(node, simulated, compute):
    nodes = [node("a", cores=0.5, quota_period_s=0.1), node("b", step_cpu_s=0.001)]
    alone = simulated({0: [compute(0, 0.4)]}, nodes[:1])
    beside = simulated({0: [compute(0, 0.4)], 1: []}, nodes)
    assert beside.step_s == pytest.approx((alone.step_s[0], 0.0), rel=0.05)
    assert beside.begin_s[0] == pytest.approx(alone.begin_s[0], rel=0.05)


def test_ranks_wait_for_each_other_from_step_to_step(node, simulated, compute, send, receive):
    """The slow one has no quota; the fast one may not run ahead of its messages."""
    nodes = [node("a", cores=0.5, quota_period_s=0.01), node("b")]
    ranks = {
        0: [receive(1, 1, 0, tag=0), compute(0, 0.001, (1,))],
        1: [compute(0, 0.05), send(1, 0, 0, (0,), tag=0)],
    }
    trace = simulated(ranks, nodes)
    assert trace.step_s == pytest.approx((0.05, 0.05), rel=0.05)
    assert trace.begin_s[0] > 0.04, "not the first of several steps"


def test_whole_cores_meet_no_quota_so_one_step_tells_all(node, simulated, compute):
    trace = simulated({0: [compute(0, 0.004)]}, [node("a", cores=1.0, quota_period_s=0.1)])
    assert trace.begin_s == (0.0,)
    assert trace.step_s == pytest.approx((0.004,))
