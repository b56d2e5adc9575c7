"""A loss that is no mean over samples is found while it trains, even where no example showed it."""

from typing import Any

import pytest
import torch
from nets import program
from torch.nn import functional as F

from nfold.errors import ProgramError
from nfold.runtime.checked_loss import CheckedLoss, with_checked_loss

SIZE, CLASSES = 8, 4


def outputs(size: int = SIZE) -> torch.Tensor:
    generator = torch.Generator().manual_seed(size)
    return torch.randn(size, CLASSES, generator=generator, dtype=torch.float64, requires_grad=True)


def labels(*values: int) -> torch.Tensor:
    return torch.tensor(values * SIZE)[:SIZE]


class Counted:
    """How often the user's loss was called."""

    def __init__(self, loss: Any = F.cross_entropy) -> None:
        self.loss, self.calls = loss, 0

    def __call__(self, made: Any, wanted: Any) -> torch.Tensor:
        self.calls += 1
        return self.loss(made, wanted)


def test_a_mean_is_returned_as_it_is():
    made = outputs()
    value = CheckedLoss(F.cross_entropy)(made, labels(0, 1, 2, 3))
    value.backward()
    assert torch.equal(value, F.cross_entropy(made, labels(0, 1, 2, 3)))
    assert made.grad is not None


def test_it_is_checked_ever_more_seldom():
    counted = Counted()
    checked = CheckedLoss(counted)
    for _ in range(64):
        checked(outputs(), labels(0, 1, 2, 3))
    # Three calls for each check: calls 1, 2, 4, 8, 16, 32 and 64.
    assert counted.calls == 64 + 3 * 7


def test_a_target_that_is_left_out_is_noticed_when_it_comes():
    checked = CheckedLoss(F.cross_entropy)
    for _ in range(6):
        checked(outputs(), labels(0, 1, 2, 3))
    with pytest.raises(ProgramError, match=r"not a mean over samples: for 8 samples .* Use -n 1, --chunks 1"):
        checked(outputs(), labels(1, 2, 3, 1, -100))


def test_a_missing_number_that_is_left_out_is_noticed_when_it_comes():
    def where_known(made: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        known = ~wanted.isnan()
        return F.mse_loss(made[known], wanted[known])

    checked, wanted = CheckedLoss(where_known), outputs().detach().flip(0)
    for _ in range(6):
        checked(outputs(), wanted)
    wanted[0] = float("nan")
    with pytest.raises(ProgramError, match="not a mean over samples"):
        checked(outputs(), wanted)


def test_class_weights_are_noticed_at_the_next_check():
    weights = torch.tensor([1.0, 1.0, 1.0, 9.0]).double()
    checked = CheckedLoss(lambda made, wanted: F.cross_entropy(made, wanted, weight=weights))
    checked(outputs(), labels(2, 1))
    with pytest.raises(ProgramError, match="not a mean over samples"):
        checked(outputs(), labels(3, 1, 1))


@pytest.mark.parametrize(
    ("made", "loss"),
    [
        (outputs(20).view(10, SIZE, 1), lambda made, wanted: made.mean() * wanted.sum()),
        (outputs(), lambda made, wanted: torch.rand(()) * made.sum()),
        (outputs(), lambda made, wanted: torch.autograd.grad(made.sum(), made, create_graph=True)[0].sum()),
    ],
    ids=["time first", "draws", "asks for gradients"],
)
def test_what_cannot_be_taken_apart_is_left_alone(made, loss):
    torch.manual_seed(1)
    expected = loss(made, labels(1))
    torch.manual_seed(1)
    assert torch.equal(CheckedLoss(loss)(made, labels(1)), expected)


def test_only_chunks_are_checked():
    mine = program("plain")
    assert with_checked_loss(mine, 1) is mine
    assert isinstance(with_checked_loss(mine, 2).loss, CheckedLoss)
