"""The digits in float64, so that results of one device and of many can be compared to the last bits."""

import torch
from torch import nn
from torch.utils.data import TensorDataset

import nfold


class InDouble(nn.Module):
    """A net whose weights and inputs are of twice the precision."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net.double()

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Compute as the net does."""
        outputs: torch.Tensor = self.net(inputs.double())
        return outputs


def program() -> nfold.Program:
    """Return a small net on the digits, in four chunks."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    data = TensorDataset(torch.tensor(images[:1280] / 16.0, dtype=torch.float64), torch.tensor(labels[:1280]))

    def model() -> nn.Module:
        return InDouble(
            nn.Sequential(nn.Linear(64, 128), nn.Tanh(), nn.Linear(128, 128), nn.Tanh(), nn.Linear(128, 10))
        )

    return nfold.Program(
        model=model,
        loss=nn.functional.cross_entropy,
        optimizer=lambda params: torch.optim.SGD(params, lr=0.1, momentum=0.9),
        train_data=lambda: data,
        batch_size=128,
        chunks=4,
        epochs=2,
    )
