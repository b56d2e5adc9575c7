"""Inputs that hold a list with an entry for each sample: names of files, numbers of Python, tensors of any length."""

import pytest
import torch
from harness import difference, graph_of, make_plan, plain_loop, play
from torch import nn
from torch.nn import functional as F
from torch.utils.data import Dataset

from nfold.program import Program

SAMPLES = 24


class Named(Dataset):
    """Items ({image, name}, target)."""

    def __init__(self):
        generator = torch.Generator().manual_seed(0)
        self.images = torch.randn(SAMPLES, 6, generator=generator, dtype=torch.float64)

    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        return {"image": self.images[index], "name": f"{index}.png"}, index % 3


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)).double()

    def forward(self, inputs):
        return self.body(inputs["image"])


class Weighed(Net):
    def forward(self, inputs):
        lengths = torch.tensor([float(len(name)) for name in inputs["name"]], dtype=torch.float64)
        return super().forward(inputs) * lengths.unsqueeze(1)


class Listed(Net):
    def forward(self, inputs):
        return torch.stack([self.body(image) for image in inputs])


def listed(items):
    return [inputs["image"] for inputs, _ in items], torch.tensor([target for _, target in items])


@pytest.mark.parametrize(("model", "collate"), [(Net, None), (Weighed, None), (Listed, listed)])
def test_inputs_with_an_entry_for_each_sample(model, collate):
    mine = Program(
        model=model,
        loss=F.cross_entropy,
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
        train_data=Named,
        batch_size=10,
        collate=collate,
    )
    graph, expected = graph_of(mine), plain_loop(mine, 4, 4).state_dict()
    assert not graph.indivisible
    assert (graph.unproved == "") is (model is Net)
    for strategy in ("ring", "ps", *(["pipeline"] if model is Net else [])):
        played = play(mine, graph, make_plan(mine, graph, strategy, 2, 0, chunks=4), 4)
        assert difference(played.state, expected) <= 1e-12, strategy
