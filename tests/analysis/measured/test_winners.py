"""Who wins where, and where another takes over: from throughputs alone."""

from dataclasses import replace

import pytest

from nfold.analysis.measured.winners import narrowed, takeovers, winners
from nfold.core.findings.comparison import Crossover, Throughput

SLOW, FAST = 6.25e6, 125e6


def point(architecture, workers, samples_per_s, link=None, origin="measured"):
    return Throughput(
        architecture=architecture, workers=workers, link_bytes_per_s=link, samples_per_s=samples_per_s, origin=origin
    )


def test_the_fastest_wins_and_its_lead_is_over_the_second():
    (won,) = winners([point("ring", 2, 100.0), point("ps", 2, 150.0), point("ps +1", 2, 120.0)])

    assert (won.architecture, won.second, won.lead) == ("ps", "ps +1", pytest.approx(1.25))


def test_every_size_and_link_has_its_own_winner():
    won = winners(
        [point("ring", 4, 9.0, SLOW), point("ps", 4, 5.0, SLOW), point("ring", 4, 1.0, FAST), point("ps", 4, 2.0, FAST)]
    )

    assert [(each.link_bytes_per_s, each.architecture) for each in won] == [(SLOW, "ring"), (FAST, "ps")]


def test_who_runs_alone_leads_nobody():
    (won,) = winners([point("ring", 2, 100.0)])

    assert (won.lead, won.second) == (1.0, "")


def test_measured_and_predicted_figures_do_not_compete():
    (won,) = winners([point("ring", 2, 100.0), point("ps", 2, 900.0, origin="predicted")])

    assert (won.architecture, won.origin) == ("ring", "measured")


def test_a_takeover_lies_between_two_sizes():
    won = winners(
        [
            *(point("ps", count, 10.0) for count in (2, 4, 8)),
            *(point("ring", count, speed) for count, speed in ((2, 8.0), (4, 9.0), (8, 30.0))),
        ]
    )

    assert takeovers(won) == (
        Crossover(link_bytes_per_s=None, workers=8, last_workers=4, winner="ring", loser="ps", origin="measured"),
    )


def test_a_takeover_beyond_the_measured_sizes_is_predicted():
    won = winners(
        [
            point("ring", 2, 10.0),
            point("ps", 2, 5.0),
            point("ring", 64, 10.0, origin="predicted"),
            point("ps", 64, 50.0, origin="predicted"),
        ]
    )
    (taken,) = takeovers(won)

    assert (taken.winner, taken.last_workers, taken.workers, taken.origin) == ("ps", 2, 64, "predicted")


def test_a_tie_takes_nothing_over():
    won = winners([point("ring", 2, 10.0), point("ps", 2, 5.0), point("ring", 4, 10.0), point("ps", 4, 10.1)])

    assert takeovers(won) == ()


def test_links_take_over_apart():
    won = winners(
        [point("ring", 2, 9.0, SLOW), point("ps", 2, 5.0, SLOW), point("ps", 4, 9.0, FAST), point("ring", 4, 1.0, FAST)]
    )

    assert takeovers(won) == ()


def test_who_has_no_figure_at_a_size_is_not_beaten_there():
    won = winners(
        [
            *(point(name, 4, speed) for name, speed in (("hybrid", 10.0), ("ring", 5.0), ("ps", 4.0))),
            *(point(name, 8, speed, origin="predicted") for name, speed in (("ring", 6.0), ("ps", 4.0))),
            *(point(name, 16, speed, origin="predicted") for name, speed in (("ring", 6.0), ("ps", 9.0))),
        ]
    )
    (taken,) = takeovers(won)

    assert won[0].ranked == ("hybrid", "ring", "ps")
    assert (taken.winner, taken.loser, taken.last_workers, taken.workers) == ("ps", "ring", 8, 16)


def test_who_was_not_tried_at_the_smaller_size_takes_nothing_over_unless_it_has_more_servers_than_workers():
    before = [point("ring", 2, 10.0), point("weighted", 2, 5.0)]
    after = [point("ring", 4, 10.0), point("ps +4", 4, 20.0)]
    assert takeovers(winners([*before, *after])) == ()

    (taken,) = takeovers(winners([*before, after[0], replace(after[1], servers=4)]))
    assert (taken.winner, taken.last_workers, taken.workers) == ("ps +4", 2, 4)


def test_a_takeover_is_narrowed_to_neighbouring_sizes():
    wide = Crossover(link_bytes_per_s=None, workers=64, last_workers=4, winner="ps", loser="ring", origin="predicted")
    asked = []

    def is_ahead(workers):
        asked.append(workers)
        return workers >= 37

    taken = narrowed(wide, is_ahead)

    assert (taken.last_workers, taken.workers) == (36, 37)
    assert len(asked) <= 6
    assert narrowed(wide, lambda _: True).workers == 5
