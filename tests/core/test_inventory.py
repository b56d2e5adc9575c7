"""Nodes that hold the same file are found, and the same data have the same key."""

import pytest

from nfold.core import codec
from nfold.core.inventory import Inventory, data_key, keys_of, refuse_claimed_twice
from nfold.errors import ClusterError


def holding(files=None, *, digest="d", count=3):
    keys = keys_of(files) if files is not None else ""
    number = len(files) if files is not None else count
    return Inventory(num_samples=number, sample_bytes=10.0, num_pinned=0, digest=digest, keys=keys)


def test_a_file_on_two_nodes_is_refused_with_both():
    nodes = {"pi1": holding({"a": 1, "b": 2}), "pi2": holding({"c": 1}), "pi3": holding({"d": 5, "e": 5, "b": 2})}
    with pytest.raises(
        ClusterError, match="pi1 and pi3 both hold one sample: file 2 of 2 on pi1 and file 3 of 3 on pi3"
    ):
        refuse_claimed_twice(nodes)


def test_files_of_one_name_and_two_sizes_are_two_samples():
    refuse_claimed_twice(
        {"pi1": holding({"a": 1, "b": 2}), "pi2": holding({"a": 2}), "pi3": holding(), "pi4": holding()}
    )


def test_the_key_follows_from_data_and_their_order():
    one, other = holding(digest="1"), holding(digest="2")
    key = data_key({"a": one, "b": other})
    assert key == data_key({"x": one, "y": other})
    changed = ({"b": other, "a": one}, {"a": one}, {"a": one, "b": holding(digest="2", count=4)})
    assert key not in {data_key(each) for each in changed}


def test_an_inventory_travels():
    given = holding({"a": 1, "b": 2})
    assert codec.decode(Inventory, codec.encode(given)) == given
    assert len(given.claims) == 2
