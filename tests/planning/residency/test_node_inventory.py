"""Nodes that hold the same file are found, and the same data have the same key."""

import pytest

from nfold.core import codec
from nfold.errors import ClusterError
from nfold.planning.residency.node_inventory import Inventory, data_key, keys_of, refuse_claimed_twice


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
        {"pi1": holding({"a": 1, "b": 2}), "pi2": holding({"a": 2}), "pi3": holding(), "pi4": holding(digest="e")}
    )


def test_two_nodes_that_give_the_same_items_are_refused_with_both():
    with pytest.raises(
        ClusterError, match=r"pi1 and pi3 both hold the same 3 samples.* An epoch would visit each twice"
    ):
        refuse_claimed_twice({"pi1": holding(), "pi2": holding(digest="e"), "pi3": holding()})
    unread = {"num_samples": 3, "sample_bytes": 0.0, "num_pinned": 3, "why_pinned": "it draws", "digest": "d"}
    refuse_claimed_twice({node: Inventory(**unread) for node in ("pi1", "pi2")})
    refuse_claimed_twice({node: holding(count=0) for node in ("pi1", "pi2")})


def test_items_are_kept_for_one_run_and_files_for_all():
    """Nobody could tell whether items are those that came in an earlier run."""
    files, items, none = holding({"a": 1}), holding(), holding(count=0)
    assert data_key({"a": files, "b": none}, "one") == data_key({"a": files, "b": none}, "other")
    assert data_key({"a": files, "b": items}, "one") != data_key({"a": files, "b": items}, "other")


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
