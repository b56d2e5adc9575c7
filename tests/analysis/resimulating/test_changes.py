"""Changes of a question, answered without doing anything twice."""

import pytest
from grids import chain, facts

from nfold.analysis.resimulating.asynchronous_playback import drift_back
from nfold.analysis.resimulating.changes import proposed_like
from nfold.planning.asynchronous import asynchronous_strategies
from nfold.planning.choosing.strategies import named


@pytest.mark.parametrize("strategy", ["ps-async", "ssp"])
def test_a_proposal_without_steps_is_played_once(strategy, monkeypatch):
    played = []
    monkeypatch.setattr(
        asynchronous_strategies,
        "drift",
        lambda question, drift=asynchronous_strategies.drift: played.append(0) or drift(question),
    )
    question = facts(chain(100, 100), 3)
    found = proposed_like(question, named(strategy), 0)
    assert len(played) == 1
    again = drift_back(found.plan, question)
    assert (found.step_s, found.ages) == (again.step_s, again.staleness)
