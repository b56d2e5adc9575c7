"""A node tells what it costs its processor when a sample moves."""

from itertools import count

import pytest
import torch

from nfold.node_data import LocalFiles
from nfold.runtime.samples.sample_costs import sample_costs


def ticking(tick_s):
    """Make a clock by which all takes one tick from one look to the next."""
    return count(0.0, tick_s).__next__


class Noisy(list):
    def __getitem__(self, index):
        return torch.rand(2), index


def test_seconds_are_those_of_one_sample():
    slow, quick = (sample_costs([(torch.zeros(4), 1)] * 500, ticking(tick_s)) for tick_s in (8.0, 1e-5))
    assert (slow.send_s, slow.keep_s) == pytest.approx((8.0, 8.0)), "one that takes so long is tried alone"
    assert (quick.send_s, quick.keep_s) == pytest.approx((2e-8, 2e-8))


def test_what_has_come_is_slower_to_read_only_where_it_is_an_item(tmp_path):
    (tmp_path / "1").write_bytes(b"1234")
    assert sample_costs(LocalFiles(tmp_path, ["1"], str)).read_s == 0.0
    assert sample_costs([(torch.zeros(4), 1)] * 100).read_s > 0.0


@pytest.mark.parametrize("items", [[], Noisy([1, 2]), [(object(), 1)]], ids=["none", "draws", "no bytes"])
def test_who_can_send_nothing_tells_nothing(items):
    assert sample_costs(items) is None
