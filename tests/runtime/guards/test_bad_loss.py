"""What is said of a loss that is no number."""

import math

import pytest
import torch

from nfold.runtime.guards.bad_loss import samples_with_nan, tell_chunk, tell_loss

WHOLE = (torch.ones(4, 3), torch.tensor([0, 1, 2, 3]))


def test_data_without_nan_are_not_accused():
    assert tell_loss(2, math.inf, [7, 5, 3, 1], WHOLE) == (
        "the loss of chunk 2 is inf. A smaller learning rate or gradient clipping often helps."
    )


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        ([1], "item 5 of train_data() (1 of the chunk's 8) holds NaN"),
        ([1, 0], "items 5, 7 of train_data() (2 of the chunk's 8) hold NaN"),
        (range(7), "items 0, 1, 3, 5, 7, .. 11 of train_data() (7 of the chunk's 8) hold NaN"),
    ],
)
def test_items_with_nan_are_named_by_their_place_in_the_dataset(rows, text):
    inputs = torch.ones(8, 2, 3)
    inputs[list(rows), 0, 1] = math.nan
    said = tell_loss(0, math.nan, [7, 5, 3, 1, 0, 9, 11, 13], ({"pixels": inputs}, torch.zeros(8, dtype=torch.int64)))
    assert said == f"the loss of chunk 0 is nan, since the data are: {text}. Repair them, or leave them out."


def test_targets_count_and_infinite_values_do_not():
    inputs, targets = torch.full((3, 2), -math.inf), torch.tensor([0.0, math.nan, 1.0])
    assert samples_with_nan([4, 6, 8], (inputs, targets)) == {6}


def test_what_has_no_row_for_each_sample_is_left_alone():
    assert samples_with_nan([4, 6], ((torch.tensor(math.nan), torch.full((3,), math.nan)), torch.zeros(2))) == set()


def test_a_chunk_that_cannot_be_computed_is_told_with_its_items_and_their_targets():
    assert tell_chunk(2, [7, 5, 3, 1], (torch.ones(4, 3), torch.tensor([0, 2, 6, 1]))) == (
        "Chunk 2 was of items 7, 5, 3, 1 of train_data(); their targets go from 0 (item 7) to 6 (item 3)."
    )
    many = list(range(40, 47))
    assert tell_chunk(0, many, (torch.ones(7), torch.ones(7))) == (
        "Chunk 0 was of items 40, 41, 42, 43, 44, .. 46 of train_data()."
    )
    assert tell_chunk(0, [3, 2], (torch.ones(2), torch.ones(3, dtype=torch.int64))).endswith(
        "items 3, 2 of train_data()."
    )
    assert tell_chunk(0, [9], (torch.ones(1), torch.ones(1))).startswith("Chunk 0 was of one sample, item 9 of train")


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.uint16, torch.int64])
def test_targets_of_every_type_of_whole_numbers_are_told(dtype):
    told = tell_chunk(0, [5, 3], (torch.ones(2), torch.tensor([1, 0]).to(dtype)))
    assert told.endswith("their targets go from 0 (item 3) to 1 (item 5).")


def test_targets_of_complex_numbers_have_no_range():
    assert tell_chunk(0, [5, 3], (torch.ones(2), torch.ones(2, dtype=torch.complex64))).endswith("of train_data().")
