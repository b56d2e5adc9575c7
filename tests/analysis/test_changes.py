"""Changes of a question, answered without doing anything twice."""

import pytest
from grids import chain, facts

from nfold.analysis.changes import proposed_like
from nfold.analysis.drifted import drift_back
from nfold.planning import asynchronous
from nfold.planning.strategies import named


@pytest.mark.parametrize("strategy", ["ps-async", "ssp"])
def test_a_proposal_without_steps_is_played_once(strategy, monkeypatch):
    played = []
    monkeypatch.setattr(
        asynchronous, "drift", lambda question, drift=asynchronous.drift: played.append(0) or drift(question)
    )
    question = facts(chain(100, 100), 3)
    found = proposed_like(question, named(strategy), 0)
    assert len(played) == 1
    again = drift_back(found.plan, question)
    assert (found.step_s, found.ages) == (again.step_s, again.staleness)
