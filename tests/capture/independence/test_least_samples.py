"""How many samples a program needs to compute at all, found by trying one."""

import numpy
import pytest
import torch
from torch import nn

from nfold.capture.batches.example import Example
from nfold.capture.capture import capture

functional = nn.functional


class _Given(nn.Module):
    """Batch statistics by a function, which no module's class shows."""

    def forward(self, rows):
        return functional.batch_norm(rows, None, None, training=True)


class _Whitened(nn.Module):
    def forward(self, rows):
        return rows / rows.std(0)


def _example(*shape):
    def make(size, which):
        generator = torch.Generator().manual_seed(which)
        return torch.randn(size, *shape, generator=generator), (torch.arange(size) + which) % 2

    return Example(make=make)


def _rows(*layers):
    return nn.Sequential(nn.Linear(8, 4), *layers, nn.Linear(4, 2)), (8,)


def _maps(*layers, features=8):
    return nn.Sequential(nn.Conv2d(1, 2, 3), *layers, nn.Flatten(), nn.Linear(features, 2)), (1, 4, 4)


@pytest.mark.parametrize(
    ("built", "module", "error"),
    [
        (_rows(nn.BatchNorm1d(4)), "1", "more than 1 value per channel"),
        (_rows(nn.Sequential(nn.ReLU(), nn.SyncBatchNorm(4))), "1.1", "more than 1 value per channel"),
        (_rows(nn.BatchNorm1d(4, track_running_stats=False)), "1", "more than 1 value per channel"),
        (_rows(_Given()), "1", "more than 1 value per channel"),
        (_rows(_Whitened()), "1", "a result that is not a number"),
        (_rows(nn.GroupNorm(4, 4)), "1", "more than 1 value per channel"),
        (_maps(nn.AdaptiveAvgPool2d(1), nn.BatchNorm2d(2), features=2), "2", "more than 1 value per channel"),
    ],
)
def test_who_needs_two_samples_is_named(built, module, error):
    model, shape = built
    graph = capture(model, functional.cross_entropy, _example(*shape)).graph
    assert (graph.least_samples, graph.least_samples_module) == (2, module)
    assert error in graph.least_samples_error


@pytest.mark.parametrize("built", [_rows(nn.LayerNorm(4)), _rows(nn.GroupNorm(2, 4)), _maps(nn.BatchNorm2d(2))])
def test_others_compute_on_one(built):
    model, shape = built
    graph = capture(model, functional.cross_entropy, _example(*shape)).graph
    assert (graph.least_samples, graph.least_samples_module, graph.least_samples_error) == (1, "", "")


class _Squeezed(nn.Module):
    """The largest number of each sample; of one alone, whose dimension vanishes too, that of each map."""

    def forward(self, maps):
        return maps.squeeze().flatten(1).amax(1)


class _Told(nn.Module):
    def forward(self, rows):
        return rows * 2 if len(rows) == 1 else rows


class _Noisy(nn.Module):
    def forward(self, rows):
        return rows * float(numpy.random.rand())


class _SplitUp(nn.Module):
    """Rows, one after another; nothing that a trace could follow for any number of samples."""

    def forward(self, rows):
        return rows * sum(map(float, rows.detach().sum(1)))


@pytest.mark.parametrize(
    ("built", "why"),
    [
        (_maps(nn.BatchNorm2d(2)), ""),
        (_rows(nn.LayerNorm(4), nn.Dropout(0.5)), ""),
        (_rows(nn.BatchNorm1d(4)), "it does not compute on one"),
        (_rows(_Told()), "of one alone it computes something else"),
        (_rows(_Noisy()), "it draws from numpy's or Python's generator"),
        (_rows(_SplitUp()), "the batch cannot be cut"),
    ],
)
def test_a_chunk_has_a_single_sample_only_where_that_gives_the_same(built, why):
    model, shape = built
    found = capture(model, functional.cross_entropy, _example(*shape)).graph
    assert found.why_pairs.startswith(why)
    assert bool(found.why_pairs) == bool(why)


def test_a_dimension_that_vanishes_with_the_other_samples_is_noticed():
    def loss(outputs, targets):
        return (outputs.reshape(len(targets), -1).mean(1) - targets).square().mean()

    graph = capture(nn.Sequential(nn.Conv2d(1, 2, 3), _Squeezed()), loss, _example(1, 4, 4)).graph
    assert (graph.unproved, graph.least_samples) == ("", 1)
    assert graph.why_pairs == "of one alone it computes something else"


def test_a_chunk_of_samples_that_nobody_can_prove_apart_has_two():
    class Deciding(nn.Module):
        def forward(self, rows):
            return rows * 2 if float(rows.detach().sum()) > 1e6 else rows

    model, shape = _rows(Deciding())
    graph = capture(model, functional.cross_entropy, _example(*shape)).graph
    assert graph.unproved
    assert graph.why_pairs == "nobody could prove that its samples do not see each other"


def test_a_single_sample_without_a_loss_says_nothing_of_the_others():
    def loss(outputs, targets):
        return functional.cross_entropy(outputs, targets, ignore_index=0)  # so is the first sample's

    model, shape = _rows()
    assert capture(model, loss, _example(*shape)).graph.least_samples == 1


def test_inputs_that_go_by_keyword_are_given_so():
    class Keywords(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(8, 2)

        def forward(self, rows, scale):
            return self.layer(rows) * scale[:, None]

    plain = _example(8)

    def make(size, which):
        rows, labels = plain.batch(size, which)
        return {"rows": rows, "scale": torch.ones(size)}, labels

    assert capture(Keywords(), functional.cross_entropy, Example(make=make)).graph.least_samples == 1
