"""Items become bytes and come back as they were, alone and without what they are views of."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nfold.errors import InternalError, ProgramError
from nfold.runtime.samples.record import item_of_bytes, item_to_bytes

PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.complex_numbers(allow_nan=False)
    | st.text()
    | st.binary(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text() | st.integers(), inner, max_size=3)
    ),
    max_leaves=8,
)


def travelled(item):
    return item_of_bytes(item_to_bytes(item, "it"))


@given(PLAIN)
def test_plain_values_come_back_with_their_types(item):
    found = travelled(item)
    assert (found, repr(found)) == (item, repr(item))


@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(6.0).reshape(2, 3),
        torch.tensor(3),
        torch.zeros(0, 3),
        torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
        torch.randn(4, 5, 3).permute(2, 0, 1),
        torch.randn(3, dtype=torch.complex64),
        torch.tensor([True, False]),
        torch.randn(7, dtype=torch.bfloat16)[1:],
        torch.tensor([1, -1], dtype=torch.int8),
    ],
    ids=lambda each: f"{str(each.dtype)[6:]}-{'x'.join(map(str, each.shape))}",
)
def test_a_tensor_comes_back_with_type_and_strides(tensor):
    found, label = travelled((tensor, 1))
    assert (found.dtype, found.shape, label) == (tensor.dtype, tensor.shape, 1)
    assert torch.equal(found, tensor)
    assert found.stride() == tensor.stride()


def test_a_view_brings_no_more_than_itself():
    assert len(item_to_bytes(torch.zeros(1 << 20)[1000:1010], "it")) < 200
    assert torch.equal(travelled(torch.arange(20)[3:17:2]), torch.arange(20)[3:17:2])
    assert torch.equal(travelled(torch.ones(5).expand(4, 5)), torch.ones(4, 5))


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6).reshape(2, 3),
        np.zeros(0),
        np.asfortranarray(np.eye(3)),
        np.array("2026", dtype="M8[D]"),
        np.array(["a"]),
    ],
    ids=lambda each: f"{each.dtype}-{each.shape}",
)
def test_arrays_come_back(array):
    found = travelled(array)
    assert type(found) is np.ndarray
    assert (found.dtype, found.shape, found.flags.f_contiguous) == (array.dtype, array.shape, array.flags.f_contiguous)
    assert np.array_equal(found, array)


def test_scalars_of_numpy_stay_such():
    for value in (np.float32(0.1), np.int64(7), np.bool_(True), np.str_("a")):
        found = travelled(value)
        assert (type(found), found) == (type(value), value)
    assert math.isnan(travelled(float("nan")))


class Own:
    pass


@pytest.mark.parametrize(
    ("item", "said"),
    [
        ((Own(), 1), "a value of type Own"),
        (torch.eye(2).to_sparse(), "torch.sparse_coo"),
        (torch.ones(2, requires_grad=True), "requires_grad"),
        (np.array([Own()]), "numpy array of Python objects"),
    ],
    ids=["own", "sparse", "gradient", "objects"],
)
def test_what_has_no_form_is_refused_with_what_to_do(item, said):
    with pytest.raises(ProgramError) as refusal:
        item_to_bytes(item, "item 7 of train_data()")
    assert "item 7 of train_data()" in str(refusal.value)
    assert said in str(refusal.value)
    assert "pinned=True" in str(refusal.value)


@given(PLAIN, st.data())
def test_bytes_that_break_off_are_no_item(item, data):
    whole = item_to_bytes(item, "it")
    with pytest.raises(InternalError):
        item_of_bytes(whole[: data.draw(st.integers(0, len(whole) - 1))])
    with pytest.raises(InternalError):
        item_of_bytes(whole + b"?")


def test_a_tensor_with_other_bytes_than_its_shape_has_is_no_item():
    whole = item_to_bytes(torch.zeros(2, dtype=torch.uint8), "it")
    assert item_of_bytes(whole).tolist() == [0, 0]
    with pytest.raises(InternalError, match=r"shape \(9,\)"):
        item_of_bytes(whole.replace(b"uint8 2 1", b"uint8 9 1"))
