"""Ordinary nets are cut into as many operators as they once were, so that no change makes fewer cuts unseen."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from zoo import CLASSES, GPT, Net, UNet, images, words

from nfold.capture.capture import capture


class Basic(nn.Module):
    """A block of a ResNet-18."""

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs)
        self.conv2, self.bn2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs)
        self.relu, self.downsample = nn.ReLU(inplace=True), None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        identity = x if self.downsample is None else self.downsample(x)
        out = self.relu(self.bn1(self.conv1(x)))
        return self.relu(self.bn2(self.conv2(out)) + identity)


class ResNet(nn.Sequential):
    def __init__(self):
        super().__init__(
            nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(inplace=True),
            Basic(4, 4, 1), Basic(4, 4, 1), Basic(4, 8, 2), Basic(8, 8, 1),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, CLASSES),
        )  # fmt: skip


class PackedGRU(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru, self.head = nn.GRU(4, 8, batch_first=True), nn.Linear(8, CLASSES)

    def forward(self, inputs):
        x, lengths = inputs
        out, _ = self.gru(pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False))
        return self.head(pad_packed_sequence(out, batch_first=True)[0].amax(1))


def sequences(size):
    return torch.randn(size, 8, 4, dtype=torch.float64), torch.randint(2, 9, (size,))


def of_words(outputs, target):
    return F.cross_entropy(outputs.reshape(-1, 11), target.reshape(-1))


NETS = {
    "resnet": (Net(ResNet, images), 28),
    "unet": (Net(UNet, images), 12),
    "gpt": (Net(GPT, words, words, of_words), 50),
    "packed gru": (Net(PackedGRU, sequences), 4),
}
"""Nets, and the operators that they have."""


@pytest.mark.parametrize("name", NETS)
def test_ordinary_nets_have_no_fewer_operators_than_before(name):
    net, count = NETS[name]
    graph = capture(net.model(), net.loss, net.example()).graph
    assert len(graph.operators) >= count, graph.notes
    assert graph.capture == "fx", graph.notes
