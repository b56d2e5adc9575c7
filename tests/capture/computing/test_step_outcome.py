"""Large tensors are compared a piece at a time, which changes no answer."""

import pytest
import torch

from nfold.capture.computing import step_outcome
from nfold.capture.computing.step_outcome import close

SEVEN = torch.arange(7.0)


@pytest.mark.parametrize("piece", [1, 3, 100])
@pytest.mark.parametrize(
    ("expected", "found", "equal"),
    [
        (SEVEN, SEVEN.clone(), True),
        (SEVEN, SEVEN + torch.tensor([0, 0, 0, 0, 0, 0, 0.1]), False),
        (SEVEN, SEVEN + torch.tensor([1e-4, 0, 0, 0, 0, 0, 0]), True),  # a rounding by the scale of the last one
        (torch.tensor([0.0, torch.nan, torch.inf]), torch.tensor([0.0, torch.nan, torch.inf]), True),
        (torch.tensor([0.0, torch.nan, 1.0]), torch.tensor([0.0, 1.0, 1.0]), False),
        (torch.zeros(0, 3), torch.zeros(0, 3), True),
        (torch.tensor(2.0), torch.tensor(2.0), True),
        (SEVEN.reshape(7, 1).expand(7, 2), torch.stack([SEVEN, SEVEN], dim=1), True),
    ],
)
def test_pieces_change_no_answer(monkeypatch, piece, expected, found, equal):
    monkeypatch.setattr(step_outcome, "PIECE", piece)
    assert close(expected, found) is equal
