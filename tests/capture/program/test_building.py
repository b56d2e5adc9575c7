"""What a program's function gives is put into train mode, and what that changes is known."""

import pytest
import torch
from torch import nn

from nfold.capture.program.building import build_model, set_to_train
from nfold.program import Program

CPU = torch.device("cpu")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout())
        self.head = nn.Linear(4, 2)


class Steady(Net):
    def train(self, mode=True):
        super().train(mode)
        self.body.eval()
        return self


def frozen(kind):
    net = kind()
    net.body.eval()
    net.head.eval()
    return net


@pytest.mark.parametrize(
    ("model", "lost"),
    [(Net, ()), (lambda: frozen(Net), ("body",)), (lambda: frozen(Steady), ()), (lambda: Net().eval(), ())],
    ids=["as it is", "in eval mode", "kept there", "all of it"],
)
def test_parts_that_training_puts_out_of_eval_mode(model, lost):
    mine = Program(model=model, loss=nn.MSELoss(), optimizer=torch.optim.SGD, train_data=list, batch_size=2)
    built = build_model(mine, CPU)
    assert built.training
    assert set_to_train(built) == lost
    assert built.body.training is not isinstance(built, Steady)
