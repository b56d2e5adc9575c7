"""Batches that a program joins to lists with an entry for each sample, as of boxes and labels."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from nfold.capture.capture import capture
from nfold.capture.example_batches import sample_batches
from nfold.capture.independence.batch_cut import SIZE


class _Items(torch.utils.data.Dataset):
    def __init__(self, target):
        self.target = target

    def __len__(self):
        return 40

    def __getitem__(self, index):
        return torch.randn(6, generator=torch.Generator().manual_seed(index)), self.target(index)


def _listed(items):
    return torch.stack([row for row, _ in items]), [target for _, target in items]


def _mean_of_labels(outputs, targets):
    each = [
        F.cross_entropy(row, torch.as_tensor(target["label"])) for row, target in zip(outputs, targets, strict=True)
    ]
    return torch.stack(each).mean()


def _mean_of_boxes(outputs, targets):
    return torch.stack([(row - each["box"]).square().mean() for row, each in zip(outputs, targets, strict=True)]).mean()


def _sum_of_labels(outputs, targets):
    return _mean_of_labels(outputs, targets) * len(targets)


@pytest.mark.parametrize(
    ("target", "loss", "why"),
    [
        (lambda index: {"label": index % 4, "name": "a text"}, _mean_of_labels, ""),
        (lambda index: {"label": torch.tensor(index % 4)}, _mean_of_labels, ""),
        (lambda index: {"box": torch.arange(SIZE) * index}, _mean_of_boxes, ""),  # as many numbers as samples are tried
        (lambda index: {"label": index % 4}, _sum_of_labels, "the loss is not a mean over samples"),
    ],
)
def test_a_loss_over_a_list_of_dicts_is_tried_with_the_entries_of_its_samples(target, loss, why):
    example = sample_batches(_Items(target), collate=_listed)
    graph = capture(nn.Linear(6, SIZE), loss, example).graph
    assert graph.unproved.startswith("Python goes through samples one by one")
    assert graph.indivisible.startswith(why)
    assert bool(graph.indivisible) == bool(why)
