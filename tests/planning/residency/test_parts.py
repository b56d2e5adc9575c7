"""Traffic, whole samples, transfers, greedy and drawn clusters."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scattered import boxes, random_boxes

from nfold.errors import PlanError
from nfold.planning.residency.methods.equal import equal_holdings
from nfold.planning.residency.methods.greedy import greedy_holdings
from nfold.planning.residency.methods.waterfilling import holdings_at, water_level
from nfold.planning.residency.model.scenarios import SCENARIOS, Scenario, drawn
from nfold.planning.residency.model.traffic import Links, Traffic
from nfold.planning.residency.model.transfers import Flow, flows
from nfold.planning.residency.model.whole_samples import whole

LINKS = Links(np.array([10.0, 20, 40]), np.array([20.0, 20, 40]), np.array([0.1, 0.2, 0.3]), *np.zeros((2, 3)))
ALL = np.array([True, True, True])


def test_a_ring_waits_for_its_slowest_link():
    """Measured: four nodes, 221 KB, the slowest at 10 Mbit/s: 0.274 to 0.281 s."""
    assert Traffic(gradient_bytes=30).sync_s(LINKS, ALL) == pytest.approx(2 * 2 * (30 / 3 / 10 + 0.5))
    slow = Links(np.array([1.25e6, 6e6, 6e6, 6e6]), np.full(4, 6e6), *np.zeros((3, 4)))
    assert Traffic(gradient_bytes=221_000).sync_s(slow, np.full(4, True)) == pytest.approx(0.265, abs=0.001)


def test_a_server_carries_the_gradients_of_all():
    """The third node serves: two gradients in at 40, one out at 10 of the first; two back at 40, or one at 20."""
    sync_s = Traffic(kind="server", gradient_bytes=100).sync_s(LINKS, ALL)
    assert sync_s == pytest.approx(max(100 / 10, 200 / 40) + max(100 / 20, 200 / 40) + 2 * 0.5)
    assert Traffic(kind="server", gradient_bytes=100).link_bytes(LINKS, ALL).tolist() == [100, 100, 200]


@pytest.mark.parametrize(("kind", "messages"), [("ring", [4, 4, 4]), ("server", [1, 1, 2]), ("pipeline", [2, 2, 2])])
def test_processors_handle_bytes_while_others_travel_and_messages_beside_that(kind, messages):
    traffic = Traffic(kind=kind, gradient_bytes=100, activation_bytes=100)
    quick = LINKS._replace(byte_s=np.full(3, 1e-6), message_s=np.array([0.0, 0.0, 0.25]))
    assert traffic.link_messages(LINKS, ALL).tolist() == messages
    assert traffic.sync_s(quick, ALL) == pytest.approx(traffic.sync_s(LINKS, ALL) + messages[2] / 2)
    slow = LINKS._replace(byte_s=np.full(3, 1.0), latency_s=np.zeros(3))
    assert traffic.sync_s(slow, ALL) == pytest.approx(2 * traffic.link_bytes(LINKS, ALL).max())


@pytest.mark.parametrize("kind", ["ring", "server"])
def test_one_node_alone_sends_nothing(kind):
    alone = np.array([False, True, False])
    traffic = Traffic(kind=kind, gradient_bytes=100)
    assert (traffic.sync_s(LINKS, alone), traffic.link_bytes(LINKS, alone).tolist()) == (0, [0, 0, 0])


@given(seed=st.integers(0, 1 << 30))
def test_made_whole_no_sample_is_lost(seed):
    asked = random_boxes(seed)
    holds = holdings_at(asked, water_level(asked, 3))
    found = whole(holds, asked)
    assert found.sum() == asked.total
    assert (found == np.round(found)).all()
    assert (np.abs(found - holds) <= 1 + 1e-6).all()
    assert ((found >= asked.least) & (found <= asked.most)).all()


def test_what_was_whole_stays():
    asked = boxes(held=[4, 3, 3], rate=[1, 1, 1], up=[1, 1, 1])
    assert whole(np.array([2.5, 3.0, 4.5]), asked).tolist() == [3, 3, 4], "who is done sooner takes one more"


def test_few_transfers_and_near_ones_first():
    held, holds = np.array([10.0, 6, 0, 0, 0]), np.array([0.0, 0, 6, 6, 4])
    assert flows(held, holds, ["", "", "", "", ""]) == [Flow(0, 2, 6), Flow(1, 3, 6), Flow(0, 4, 4)]
    assert flows(held, holds, ["x", "y", "y", "", "x"]) == [Flow(0, 4, 4), Flow(1, 2, 6), Flow(0, 3, 6)]


def test_equal_balance_looks_neither_at_speed_nor_at_links():
    assert equal_holdings(boxes(held=[90, 0, 0], rate=[1, 5, 9], up=[1, 2, 3])) == pytest.approx([30, 30, 30])


def test_equal_balance_keeps_to_pins_and_room_and_leaves_out_who_is_excluded():
    asked = boxes(held=[50, 50, 0, 0], rate=[1, 1, 1, 0], up=[1] * 4, least=[0, 50, 0, 0], most=[100, 100, 10, 100])
    assert equal_holdings(asked) == pytest.approx([40, 50, 10, 0])


def test_greedy_gives_from_the_last_to_the_first():
    even = greedy_holdings(boxes(held=[1000, 0], rate=[1, 1], up=[1e6, 1e6]), 1)
    assert even == pytest.approx([500, 500], abs=10)
    stays = greedy_holdings(boxes(held=[1000, 0], rate=[1, 1], up=[0.1, 0.1]), 1)
    assert stays.tolist() == [1000, 0], "a piece leaves more slowly than it is computed"


def test_greedy_empties_who_is_excluded_within_the_others_room():
    asked = boxes(held=[90, 0, 0], rate=[0, 2, 1], up=[1, 1, 1], most=[90, 30, 100])
    assert greedy_holdings(asked, 1).tolist() == [0, 30, 60]


def test_a_drawn_cluster_is_the_same_for_a_seed():
    for scenario in SCENARIOS:
        one, again, other = drawn(scenario, 12, 3), drawn(scenario, 12, 3), drawn(scenario, 12, 4)
        assert one == again != other
        assert sum(node.num_samples for node in one.nodes) == 12_000


def test_a_drawn_cluster_is_as_unequal_as_asked():
    def spread(skew):
        held = [node.num_samples for node in drawn(Scenario(name="s", skew=skew), 200, 0).nodes]
        return max(held) / 1000

    assert spread(None) == 1
    assert spread(5.0) < spread(1.0) < spread(0.3)
    links = [node.uplink.bandwidth_bytes_per_s * 8e-6 for node in drawn(SCENARIOS[1], 200, 0).nodes]
    assert min(links) >= 1
    assert max(links) <= 100
    assert 7 < np.median(links) < 14, "even in the logarithm"


def test_a_scenario_without_sense_is_refused():
    with pytest.raises(PlanError, match="slowest links first"):
        Scenario(name="s", links_mbit=(5, 1))
    with pytest.raises(PlanError, match="a cluster of 0 nodes has none"):
        drawn(SCENARIOS[0], 0, 1)
