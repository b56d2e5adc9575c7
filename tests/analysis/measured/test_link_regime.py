"""Links that change in the middle of a run: it is judged by those of the end."""

from math import fsum

import pytest
from injected import MBIT, NUM_STEPS, Injected

pytestmark = pytest.mark.long

EVEN = Injected(workers=3, probe_error=0.0)
SLOW = Injected(workers=3, links={"n1 uplink": 20}, probe_error=0.0)


@pytest.fixture(scope="module")
def even():
    return EVEN.report()


@pytest.fixture(scope="module")
def slow():
    return SLOW.report()


@pytest.fixture(scope="module")
def became_slow():
    """A run whose links were probed again when they had changed."""
    return EVEN.turned_into(SLOW)


def test_a_link_that_became_slow_is_the_verdict_with_its_new_speed(became_slow, slow):
    made, alone = became_slow, slow
    assert (made.verdict.kind, made.verdict.place) == ("link", "n1 uplink")
    assert made.verdict.value == pytest.approx(20 * MBIT, rel=0.05)
    assert made.verdict.text.endswith(f"(Of the steps from {NUM_STEPS + 1} on: the links changed before.)")
    assert "It was" not in made.verdict.text, "the link is as it was known when it was judged"
    assert made.since_step == NUM_STEPS
    assert (made.step_s, made.samples_per_s) == (alone.step_s, alone.samples_per_s)
    assert made.num_steps == alone.num_steps


def test_a_link_that_recovered_is_not_blamed(slow):
    made = SLOW.turned_into(EVEN)
    assert made.verdict.place != "n1 uplink"
    assert made.step_s.p50 < 0.5 * slow.step_s.p50


def test_the_prediction_is_for_the_links_of_the_end(became_slow, slow):
    made = became_slow
    assert abs(made.predicted.step_error) < 0.1
    assert made.predicted.time is not None
    assert made.predicted.step_s == pytest.approx(slow.predicted.step_s, rel=0.05)


def test_the_ledger_is_of_the_whole_run(became_slow, slow):
    made = became_slow
    network = fsum(value for name, value in made.ledger.items() if name.startswith("network"))
    assert fsum(made.ledger.values()) == pytest.approx(10.0)
    assert network / 10.0 < slow.time.exposed_communication_s / slow.step_s.p50, "half of it had fast links"


def test_what_nobody_noticed_is_judged_as_one(even, slow):
    made = EVEN.turned_into(SLOW, is_noticed=False)
    assert made.since_step == 0
    assert even.step_s.p50 < made.step_s.p50 < slow.step_s.p50
    assert "the links changed" not in made.verdict.text
