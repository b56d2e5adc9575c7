"""What was touched comes back, and nothing else, whatever was added to what."""

import pytest
import torch

from nfold.capture.optimizers.touched_rows import at_own_begin, touched_only, untouched, without_minus_zero

TYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]


def _bucket(dtype: torch.dtype) -> torch.Tensor:
    bucket = torch.zeros(6, 2, dtype=dtype)
    untouched(bucket)
    return bucket


def _rows(dtype: torch.dtype, rows: list[int], value: float) -> torch.Tensor:
    values = torch.full((len(rows), 2), value, dtype=dtype)
    return torch.sparse_coo_tensor(torch.tensor([rows]), values, (6, 2), check_invariants=True)


@pytest.mark.parametrize("dtype", TYPES)
def test_rows_count_as_touched_where_they_cancel_out_or_are_minus_zero(dtype: torch.dtype) -> None:
    mine, others = _bucket(dtype), _bucket(dtype)
    for row, value in (([1, 1], 2.0), ([3], -0.0), ([4], 1.0)):
        mine += without_minus_zero(_rows(dtype, row, value))
    others += without_minus_zero(_rows(dtype, [4], -1.0))
    found = touched_only(mine + others, 1)
    assert found._indices().tolist() == [[1, 3, 4]]
    assert torch.equal(found.to_dense(), mine + others + 0.0)


@pytest.mark.parametrize("num_elements", [7, 1_000_003])
def test_what_nobody_touched_stays_so(num_elements: int) -> None:
    bucket = torch.zeros(num_elements)
    untouched(bucket)
    assert touched_only(bucket + bucket, 1)._nnz() == 0


def test_places_have_as_many_dimensions_as_the_gradient_had() -> None:
    bucket = _bucket(torch.float32)
    bucket[2, 1] = 5.0
    assert touched_only(bucket, 2)._indices().tolist() == [[2], [1]]
    assert touched_only(bucket, 1)._indices().tolist() == [[2]]
    assert touched_only(bucket[2], 2)._indices().tolist() == [[1]]
    assert touched_only(bucket, 0) is bucket


@pytest.mark.parametrize("dtype", TYPES)
def test_a_view_takes_sparse_tensors_where_it_lies(dtype: torch.dtype) -> None:
    memory = torch.zeros(20, dtype=dtype)
    view = at_own_begin(memory[8:12].view(2, 2))
    places = torch.tensor([[1], [0]])
    view += torch.sparse_coo_tensor(places, torch.ones(1, dtype=dtype), (2, 2), check_invariants=True)
    assert memory.nonzero().flatten().tolist() == [10]
    assert view.data_ptr() == memory[8:].data_ptr()
