"""Max-min fair sharing of links."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nfold.simulation.links import LinkFlow, Network, SharedLink, max_min_rates
from nfold.simulation.virtual_time import VirtualTime


def flows_over(paths):
    """One flow per tuple of links."""
    flows = [LinkFlow(1.0, tuple(path), lambda: None, 0.0) for path in paths]
    for flow in flows:
        for link in flow.links:
            link.flows[flow] = None
    return flows


def rates_of(paths):
    flows = flows_over(paths)
    rates = max_min_rates(flows)
    return [rates[flow] for flow in flows]


def test_one_link_is_shared_equally():
    link = SharedLink(12.0)
    assert rates_of([(link,)] * 3) == [4.0, 4.0, 4.0]


def test_what_a_slow_receiver_leaves_goes_to_the_others():
    up, slow, fast, faster = SharedLink(10.0), SharedLink(1.0), SharedLink(100.0), SharedLink(100.0)
    assert rates_of([(up, slow), (up, fast), (up, faster)]) == pytest.approx([1.0, 4.5, 4.5])


@given(
    capacities=st.lists(st.floats(0.5, 100.0), min_size=2, max_size=5),
    picks=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=8),
)
def test_rates_fill_links_and_every_flow_has_a_bottleneck(capacities, picks):
    links = [SharedLink(capacity) for capacity in capacities]
    paths = [tuple(dict.fromkeys(links[pick % len(links)] for pick in pair)) for pair in picks]
    flows = flows_over(paths)
    rates = max_min_rates(flows)
    for link in links:
        assert sum(rates[flow] for flow in link.flows) <= link.capacity_bytes_per_s * (1 + 1e-6)
    for flow in flows:
        assert any(
            sum(rates[other] for other in link.flows) >= link.capacity_bytes_per_s * (1 - 1e-6)
            and rates[flow] >= max(rates[other] for other in link.flows) * (1 - 1e-6)
            for link in flow.links
        )


def test_a_flow_speeds_up_when_another_ends():
    timeline, link, ends = VirtualTime(), SharedLink(10.0), []
    network = Network(timeline)
    network.start(10.0, (link,), lambda: ends.append(timeline.now))
    network.start(30.0, (link,), lambda: ends.append(timeline.now))
    timeline.run()
    assert ends == pytest.approx([2.0, 4.0])


def test_no_bytes_take_no_time():
    timeline, ends = VirtualTime(), []
    Network(timeline).start(0.0, (SharedLink(10.0),), lambda: ends.append(timeline.now))
    timeline.run()
    assert ends == [0.0]
