"""Test figures are means over samples, whatever the batches and the structure of targets."""

from dataclasses import replace

import pytest
import torch
from nets import images, program
from torch.nn import functional as F

from nfold.capture.building import build_model
from nfold.runtime.collecting import Collected, Run
from nfold.runtime.evaluation import evaluate, fill

CPU = torch.device("cpu")


def error_rate(outputs: torch.Tensor, targets: dict[str, torch.Tensor]) -> torch.Tensor:
    return (outputs.argmax(1) != targets["label"]).double().mean()


def test_a_last_smaller_batch_counts_for_its_samples_only():
    data = [(image, {"label": label, "weight": 1.0}) for image, label in images()]
    mine = replace(
        program("plain"),
        loss=lambda outputs, targets: F.cross_entropy(outputs, targets["label"]),
        metrics={"error": error_rate},
    )
    model = build_model(mine, CPU)
    sums = [evaluate(mine, model, data, part, 2, CPU) for part in range(2)]
    outputs, labels = model(torch.stack([image for image, _ in images()])), torch.stack([x for _, x in images()])
    for name, expected in (
        ("test_loss", F.cross_entropy(outputs, labels)),
        ("error", (outputs.argmax(1) != labels).double().mean()),
    ):
        total, count = (sum(part[name][index] for part in sums) for index in (0, 1))
        assert count == len(data)
        assert total / count == pytest.approx(expected.item(), rel=1e-12)
    assert model.training


def test_a_module_is_filled_by_pieces_that_end_anywhere():
    wanted, found = (torch.nn.BatchNorm1d(5) for _ in range(2))
    with torch.no_grad():
        wanted.weight.copy_(torch.arange(5.0))
        wanted.running_var.fill_(3.0)
        wanted.num_batches_tracked.fill_(9)
    flat = {name: value.reshape(-1) for name, value in wanted.state_dict().items()}

    def runs():
        for name, values in flat.items():
            for start in range(0, values.numel(), 2):
                data = values[start : start + 2].view(torch.uint8).numpy().data
                yield Run(name, start * values.itemsize, data)

    assert fill(found, Collected(b"", runs())) is found
    assert all(torch.equal(value, wanted.state_dict()[name]) for name, value in found.state_dict().items())


class Reordered(torch.nn.Module):
    """Elements in memory in another order than they are counted in, and a constant with one element in memory."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 4, 2).to(memory_format=torch.channels_last)
        self.weight = torch.nn.Parameter(torch.randn(2, 3).t())
        self.register_buffer("ones", torch.ones(1).expand(5))


def test_a_module_is_filled_whatever_the_order_of_its_elements_in_memory():
    wanted, found = Reordered(), Reordered()
    strides = {name: value.stride() for name, value in found.state_dict().items()}

    def runs():
        for name, value in wanted.state_dict().items():
            data = value.contiguous().view(-1).view(torch.uint8).numpy().data
            middle = 4 * (value.numel() // 2)
            yield from (Run(name, 0, data[:middle]), Run(name, middle, data[middle:]))

    fill(found, Collected(b"", runs()))
    for name, value in found.state_dict().items():
        assert torch.equal(value, wanted.state_dict()[name]), name
        assert value.stride() == strides[name]
