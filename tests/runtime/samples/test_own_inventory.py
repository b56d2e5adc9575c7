"""A node tells how many samples it has, how large they are, and why they cannot leave."""

import os

import torch

import nfold
from nfold.node_data import LocalFiles
from nfold.runtime.samples.own_inventory import inventory_of
from nfold.runtime.samples.record import item_to_bytes


def nothing(node):
    return None


def test_items_are_counted_and_a_few_are_weighed():
    items = [(torch.zeros(4), number) for number in range(100)]
    found = inventory_of(nfold.local_data(nothing, pinned=30), items)
    assert (found.num_samples, found.num_pinned, found.keys) == (100, 30, "")
    assert abs(found.sample_bytes - len(item_to_bytes(items[0], "it"))) < 1


def test_an_empty_node_has_nothing_to_tell():
    found = inventory_of(nfold.local_data(nothing, pinned=True), [])
    assert (found.num_samples, found.num_pinned, found.sample_bytes) == (0, 0, 0.0)


def test_other_items_are_other_data():
    digests = {
        inventory_of(nfold.local_data(nothing), [(value, 0)] * count).digest for value in (1, 2) for count in (3, 4)
    }
    assert len(digests) == 4


class Noisy(list):
    def __getitem__(self, index):
        return torch.rand(2), super().__getitem__(index)


def test_what_cannot_be_sent_is_pinned_with_the_reason():
    for items, why in ((Noisy([1, 2]), "draws random numbers"), ([(object(), 1)], "a value of type object")):
        found = inventory_of(nfold.local_data(nothing), items)
        assert (found.num_pinned, found.sample_bytes) == (len(items), 0.0)
        assert why in found.why_pinned


def test_files_are_told_by_name_size_and_time(tmp_path):
    names = ["1.txt", "2.txt"]
    for name in names:
        (tmp_path / name).write_text(name * 2)
    source = nfold.local_data(tmp_path, read=lambda path: path)
    found = inventory_of(source, LocalFiles(tmp_path, names, str))
    assert (found.num_samples, found.sample_bytes, len(found.claims)) == (2, 10.0, 2)
    assert inventory_of(source, source()).digest == found.digest
    (tmp_path / "2.txt").write_text("2.txt2.tx_")
    assert inventory_of(source, source()).keys != found.keys
    (tmp_path / "2.txt").write_text("2.txt" * 2)
    assert inventory_of(source, source()).keys == found.keys
    os.utime(tmp_path / "1.txt", ns=(0, 0))
    assert inventory_of(source, source()).keys == found.keys
    assert inventory_of(source, source()).digest != found.digest


def test_ends_of_long_files_tell_them_apart(tmp_path):
    for name, data in (("a", b"1" + bytes(20_000)), ("b", bytes(20_000) + b"1"), ("c", bytes(20_001))):
        (tmp_path / name).write_bytes(data)
    files = LocalFiles(tmp_path, ["a", "b", "c"], str)
    assert len({files.ends_crc(index) for index in range(3)}) == 3


def test_files_whose_names_no_node_would_take_are_pinned_with_the_reason(tmp_path):
    (tmp_path / "a\\b").write_text("x")
    source = nfold.local_data(tmp_path, read=str)
    found = inventory_of(source, source())
    assert (found.num_pinned, found.sample_bytes) == (1, 0.0)
    assert "Rename it" in found.why_pinned


def test_parts_of_one_data_set_may_be_alike():
    first, second = nfold.local_data(nothing), nfold.local_data(nothing)
    second.part = 3
    assert inventory_of(first, [1] * 3).digest != inventory_of(second, [1] * 3).digest
