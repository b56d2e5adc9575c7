"""A newcomer follows those who each have a part of the state, as one that has all, and takes its own part from that."""

from typing import Any

import pytest
import torch
from elastic import Elastic
from harness import difference
from nets import program
from random_members import undisturbed, unlike
from shadows import Followed, one_device, rich, until_followed, watch_shadows

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


@pytest.mark.parametrize("strategy", ["ps", pytest.param("pipeline", marks=pytest.mark.exhaustive)])
def test_clipping_averages_statistics_and_frozen_weights_are_one_devices(tmp_path, followed, read_bytes, strategy):
    run = Elastic(rich(), tmp_path / "run", may_lose=True, strategy=strategy)
    until_followed(run, followed)
    run.until_planned(2)
    run.train(3)
    ended, (weights, averages) = run.end(), one_device(run.step)
    assert read_bytes == [0]
    assert difference(ended.state_dict(), weights) <= 1e-9
    assert difference(ended.average_state_dict(), averages) <= 1e-9
