"""A whole run that loses a member while the final model is gathered."""

import pytest
from elastic import CHUNKS, Elastic
from harness import difference, plain_loop
from nets import program

from nfold.runtime.rank.rank_of_generation import Rank
from nfold.verbs.ranks.thread_ranks import threads_put_back
from nfold.verbs.running.run import run_of

STEPS = 6


@pytest.fixture(autouse=True)
def threads():
    with threads_put_back():
        yield


@pytest.mark.parametrize(
    ("strategy", "killed"), [("ring", 0), pytest.param("pipeline", 1, marks=pytest.mark.exhaustive)]
)
def test_the_model_is_delivered_by_those_who_are_left(tmp_path, monkeypatch, strategy, killed):
    deliver, armed = Rank._collect, [killed]

    def die_first(self, tag, **wanted):
        if armed == [self.number] and not wanted["with_optimizer"]:
            run.cut_off(armed.pop())
        return deliver(self, tag, **wanted)

    monkeypatch.setattr(Rank, "_collect", die_first)
    wishes = {"workers": 3, "strategy": strategy, "steps": STEPS}
    run = Elastic(program("residual"), tmp_path / "run", may_lose=True, **wishes)
    run.train(STEPS)
    assert list(run._steps) == []
    assert armed == []
    assert [(row.kind, row.ranks) for row in run.folder.events()] == [("loss", 2)]
    trained = run_of(run.job).state_dict()
    assert difference(trained, plain_loop(program("residual"), STEPS, CHUNKS).state_dict()) <= 1e-9
