"""A newcomer follows those who each have a part of the state, as one that has all, and takes its own part from that."""

from typing import Any

import pytest
import torch
from elastic import Elastic
from harness import difference
from nets import program
from random_members import undisturbed, unlike
from shadows import Followed, one_device, rich, until_followed, watch_shadows

from nfold.runtime.rank.rank_of_generation import Rank
from nfold.runtime.rank.state_handing import StateHanding
from nfold.verbs.ranks.thread_ranks import threads_put_back


@pytest.fixture(autouse=True)
def threads():
    with threads_put_back():
        torch.set_num_threads(1)
        yield


@pytest.fixture
def followed(monkeypatch) -> Followed:
    return watch_shadows(monkeypatch)


@pytest.fixture
def read_bytes(monkeypatch) -> list[int]:
    """What the newcomer reads of others each time that it builds with their state."""
    found, end = list[int](), StateHanding.end_reading

    def note(self):
        if self._process.member == 2 and self._reading is not None:
            found.append(self._reading.received_bytes)
        return end(self)

    monkeypatch.setattr(StateHanding, "end_reading", note)
    return found


def let_follow(run: Elastic, followed: Any) -> dict[str, torch.Tensor]:
    """Let a third come as a shadow and take part; return the end."""
    until_followed(run, followed)
    run.until_planned(2)
    run.train(3)
    return run.end().state_dict()


@pytest.mark.parametrize(
    "strategy",
    ["ps", "pipeline", *(pytest.param(each, marks=pytest.mark.exhaustive) for each in ("hybrid", "hypergraph"))],
)
def test_whatever_the_plan_who_has_followed_reads_nothing_and_all_end_with_one_devices_bits(
    tmp_path, followed, read_bytes, strategy
):
    mine = program("residual")
    run = Elastic(mine, tmp_path / "run", may_lose=True, strategy=strategy, exact=True)
    found = let_follow(run, followed)
    assert followed.steps == list(range(followed.steps[0], followed.steps[-1] + 1))
    assert read_bytes == [0]
    assert not unlike(found, undisturbed(mine, tmp_path / "alone", run.step))


@pytest.mark.exhaustive
@pytest.mark.parametrize("strategy", ["ps", "pipeline"])
def test_clipping_averages_statistics_and_frozen_weights_are_one_devices(tmp_path, followed, read_bytes, strategy):
    run = Elastic(rich(), tmp_path / "run", may_lose=True, strategy=strategy)
    until_followed(run, followed)
    run.until_planned(2)
    run.train(3)
    ended, (weights, averages) = run.end(), one_device(run.step)
    assert read_bytes == [0]
    assert difference(ended.state_dict(), weights) <= 1e-9
    assert difference(ended.average_state_dict(), averages) <= 1e-9


@pytest.mark.exhaustive
@pytest.mark.parametrize("strategy", ["ps", "pipeline"])
@pytest.mark.parametrize("moment", ["follows", "builds"])
def test_a_loss_leaves_nobody_with_a_state_of_its_own(tmp_path, monkeypatch, followed, strategy, moment):
    """Of a rank that lends, or of one that stays, in the moment in which the newcomer builds its part."""
    begin, armed = Rank._do_build, []

    def lose(self, order, header):
        if armed and self._process.member == 3:
            armed.pop()()
        begin(self, order, header)

    monkeypatch.setattr(Rank, "_do_build", lose)
    followed.are_held = moment == "follows"
    run = Elastic(rich(), tmp_path / "run", may_lose=True, workers=3, strategy=strategy, protect=2)
    if moment == "follows":
        until_followed(run, followed)
        run.cut_off(1)
        followed.are_held = False
    else:
        armed.append(lambda: run.cut_off(1))
        until_followed(run, followed)
    run.until_planned(3)
    run.train(4)
    weights = run.end().state_dict()
    assert not armed
    assert difference(weights, one_device(run.step)[0]) <= 1e-9
