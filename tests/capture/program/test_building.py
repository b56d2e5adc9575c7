"""What a program's function gives is put into train mode, and what that changes is known."""

import pytest
import torch
from torch import nn

from nfold.capture.program.building import build_model, set_to_train
from nfold.capture.side_effects.module_states import fresh_copies
from nfold.program import Program
from nfold.runtime.data.loaded_program import facts_of

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


class Resting(Net):
    """Keeps its body in eval mode where it calls it."""

    def forward(self, x):
        return self.head(self.body.eval()(x))


def test_what_forward_puts_back_itself_is_not_told():
    mine = Program(
        model=lambda: frozen(Resting),
        loss=nn.functional.cross_entropy,
        optimizer=torch.optim.SGD,
        train_data=lambda: [(torch.ones(4), 0), (torch.zeros(4), 1)],
        batch_size=2,
    )
    assert set_to_train(build_model(mine, CPU)) == ("body",)
    assert facts_of(mine, {"train": mine.train_data()})["set_to_train"] == []


class Silent(Net):
    """Forgets to return itself."""

    def train(self, mode=True):
        super().train(mode)
        self.body.eval()


def test_a_copy_is_made_of_a_model_whose_train_returns_nothing():
    copied = fresh_copies(Silent(), None)()
    assert (copied.training, copied.body.training) == (True, False)
