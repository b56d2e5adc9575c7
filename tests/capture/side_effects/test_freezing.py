"""Values that are equal to themselves although Python or torch does not say so."""

import math
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import pytest
import torch

from nfold.capture.side_effects.freezing import freeze, own_attributes, same

pytestmark = pytest.mark.filterwarnings("ignore:Sparse CS. tensor support is in beta")


@pytest.mark.parametrize(
    "make",
    [
        lambda: math.nan,
        lambda: [1.0, {"least": np.float64("nan")}],
        lambda: torch.tensor([1.0, math.nan]),
        lambda: np.array([math.nan]),
        lambda: torch.eye(3).to_sparse(),
        lambda: torch.eye(3).to_sparse_csr(),
        lambda: torch.eye(3).to_sparse_csc(),
        lambda: torch.ones(3, device="meta"),
    ],
)
def test_what_has_not_changed_is_the_same(make: Callable[[], Any]) -> None:
    value = make()
    assert same(freeze(value), freeze(value))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (lambda: math.nan, lambda: 1.0),
        (lambda: torch.tensor([1.0, math.nan]), lambda: torch.tensor([2.0, math.nan])),
        (lambda: torch.eye(3).to_sparse(), lambda: 2 * torch.eye(3).to_sparse()),
        (lambda: torch.eye(3).to_sparse(), lambda: torch.eye(3)),
        (lambda: torch.eye(3).to_sparse_csr(), lambda: torch.ones(3, 3).to_sparse_csr()),
    ],
)
def test_what_has_changed_is_not(one: Callable[[], Any], other: Callable[[], Any]) -> None:
    assert not same(freeze(one()), freeze(other()))


def test_a_slot_that_is_empty_is_passed_over_although_the_class_has_an_attribute_of_its_name() -> None:
    assert own_attributes(Literal)["_name"] == "Literal"
