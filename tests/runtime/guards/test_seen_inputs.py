"""Samples whose inputs are unlike all before."""

import pytest
import torch

from nfold.runtime.guards.seen_inputs import SeenInputs

NAN = float("nan")


def rows(*firsts):
    return torch.stack([torch.tensor([first, 0.5]) for first in firsts])


def test_all_of_a_first_chunk_and_of_one_of_another_shape_are_new():
    seen = SeenInputs()
    assert seen.new_samples(rows(0.0, 1.0), 2) == [0, 1]
    assert seen.new_samples(rows(0.0, 1.0, 0.3), 3) == []
    assert seen.new_samples(torch.zeros(2, 3), 2) == [0, 1]


@pytest.mark.parametrize(
    ("firsts", "new"),
    [
        ((0.2, 1.0), []),
        ((0.2, 1.5), [1]),
        ((-1.0, 1.5), [0, 1]),
        ((0.2, NAN), [1]),
        ((NAN, 9.0), [0, 1]),
        ((NAN, NAN), [0, 1]),
    ],
)
def test_what_goes_beyond_or_is_no_number_is_new_once(firsts, new):
    seen = SeenInputs()
    seen.new_samples(rows(0.0, 1.0), 2)
    assert seen.new_samples(rows(*firsts), 2) == new
    assert seen.new_samples(rows(*firsts), 2) == []


def test_each_new_whole_number_counts_wherever_it_lies():
    seen = SeenInputs()
    seen.new_samples({"words": torch.tensor([[1, 2], [3, 9]]), "x": rows(0.0, 1.0)}, 2)
    assert seen.new_samples({"words": torch.tensor([[1, 9], [3, 5]]), "x": rows(0.5, 1.0)}, 2) == [1]


def test_what_does_not_count_samples_makes_all_of_them_new():
    seen = SeenInputs()
    data = {"words": torch.tensor([4, 7, 5, 4]), "x": torch.tensor([0.0, 1.0, 0.5]), "y": rows(0.0, 1.0)}
    assert seen.new_samples(data, 2) == [0, 1]
    assert seen.new_samples(data, 2) == []
    assert seen.new_samples(data | {"words": torch.tensor([4, 7, 6, 4])}, 2) == [0, 1]
    assert seen.new_samples(data | {"x": torch.tensor([0.0, 1.0, 1.5])}, 2) == [0, 1]
    assert seen.new_samples(data | {"x": torch.tensor([0.5, 1.2, 0.5])}, 2) == []


def test_more_rows_for_each_sample_than_before_are_another_shape():
    seen, found = SeenInputs(), []
    for words, size in [(24, 2), (36, 3), (36, 2), (48, 2), (24, 2), (60, 2), (12, 2)]:
        found.append((seen.new_samples(torch.ones(words), size), seen.has_rare_shape))
    every = [0, 1]
    assert found == [
        (every, True), ([], False), (every, True), (every, False), ([], False), (every, True), (every, False)
    ]  # fmt: skip


def test_with_a_margin_creeping_is_new_at_last_and_a_little_beyond_is_not():
    seen = SeenInputs(margin=0.25)
    chunk = torch.linspace(-1.0, 1.0, 4).reshape(4, 1)
    found = [seen.new_samples(chunk * scale, 4) for scale in (1.0, 1.2, 1.4, 1.6, 1.8, 2.2, 2.6)]
    assert found == [[0, 1, 2, 3], [], [], [0, 3], [], [], [0, 3]]
