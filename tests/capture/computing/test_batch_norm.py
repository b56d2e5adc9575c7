"""Batch statistics taken out of each chunk and folded in later equal a plain loop over the same chunks."""

import random
from typing import Any

import pytest
import torch
from torch import nn
from zoo import ZOO, Net, rows

from nfold.capture.capture import capture
from nfold.capture.computing.batch_norm import RowFolder, StatisticsRecorder
from nfold.capture.computing.random import CellRandom
from nfold.capture.cutting.replay import play_step, segments_of
from nfold.capture.side_effects.module_states import fresh_copies

RUNNING = ("running_mean", "running_var", "num_batches_tracked")


def norms(model: nn.Module) -> dict[str, Any]:
    return {
        name: module for name, module in model.named_modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)
    }


def with_momentum(net: Net, momentum: float | None) -> nn.Module:
    model = net.model()
    for module in norms(model).values():
        module.momentum = momentum
    return model


@pytest.mark.parametrize("momentum", [0.1, 0.7, None], ids=str)
@pytest.mark.parametrize("name", ["residual", "unet", "twice"])
@pytest.mark.parametrize("cut", [False, True], ids=["module", "segments"])
def test_equals_a_plain_loop(name: str, momentum: float | None, cut: bool) -> None:
    net = ZOO[name]
    plain, model = with_momentum(net, momentum), with_momentum(net, momentum)
    batches = [net.example().batch(size, size) for size in (4, 3, 5)]
    if cut:
        captured = capture(model, net.loss, net.example())
        pieces = segments_of(captured, [[op.name] for op in captured.graph.operators], CellRandom(0))
    recorder = StatisticsRecorder(model, tuple(norms(model)))
    for _ in range(2):
        for inputs, _target in batches:
            plain(inputs)
        calls = {}
        for chunk in random.Random(1).sample(range(len(batches)), len(batches)):
            inputs, target = batches[chunk]
            play_step(captured, pieces, (inputs, target)) if cut else model(inputs)
            calls[chunk] = recorder.take()
        for chunk in sorted(calls):
            for module, found in calls[chunk].items():
                recorder.folder([module] * len(found)).fold([torch.cat([part for call in found for part in call])])
    for module, expected in norms(plain).items():
        for buffer in RUNNING:
            torch.testing.assert_close(
                getattr(norms(model)[module], buffer), getattr(expected, buffer), rtol=1e-14, atol=1e-15
            )


def test_recording_leaves_the_module_as_it_was() -> None:
    model = nn.Sequential(nn.Linear(12, 4), nn.BatchNorm1d(4)).double()
    buffers = {name: buffer for name, buffer in model.named_buffers()}
    before = {name: buffer.clone() for name, buffer in buffers.items()}
    recorder = StatisticsRecorder(model, ("1",))
    model(rows(5))
    with pytest.raises(ValueError, match="more than 1 value"):
        model(rows(1))
    model.eval()(rows(5))
    assert all(buffer is buffers[name] for name, buffer in model.named_buffers())
    assert all(torch.equal(buffer, before[name]) for name, buffer in buffers.items())
    assert model[1].momentum == 0.1
    # The call that was broken off is one: a recomputation that stops early must not go unnoticed.
    assert [len(calls) for calls in recorder.take().values()] == [2]
    recorder.close()
    model.train()(rows(5))
    assert recorder.take() == {}
    assert not torch.equal(model[1].running_mean, before["1.running_mean"])


def test_rows_fold_as_one_call_after_another_whatever_the_momenta_and_however_often_a_norm_is_called() -> None:
    momenta = {"a": 0.1, "b": None, "c": 0.3, "d": 0.1}
    made, plain = (
        {name: nn.BatchNorm1d(3 + index, momentum=momenta[name]).double() for index, name in enumerate("abcd")}
        for _ in range(2)
    )
    calls = ["a", "b", "c", "b", "d", "b", "c"]
    widths = [2 * plain[name].num_features for name in calls]
    rows = [torch.rand(sum(widths), dtype=torch.float64) for _ in range(3)]
    folder = RowFolder(made, calls)
    folder.fold(rows[:2])
    folder.fold(rows[2:])
    for row in rows:
        for name, part in zip(calls, row.split(widths), strict=True):
            norm, (mean, variance) = plain[name], part.chunk(2)
            norm.num_batches_tracked += 1
            momentum = norm.momentum or 1 / int(norm.num_batches_tracked)
            norm.running_mean.mul_(1 - momentum).add_(mean, alpha=momentum)
            norm.running_var.mul_(1 - momentum).add_(variance, alpha=momentum)
    for name, norm in plain.items():
        for buffer in RUNNING:
            assert torch.equal(getattr(made[name], buffer), getattr(norm, buffer))


@pytest.mark.parametrize("lazy", [False, True])
def test_calls_of_copies_are_not_recorded(lazy: bool) -> None:
    model = nn.Sequential(nn.Linear(12, 4), nn.BatchNorm1d(4)).double()
    recorder = StatisticsRecorder(model, ("1",))
    copy = fresh_copies(model, None, lazy=lazy)()
    copy(rows(5))
    assert recorder.take() == {}
    assert copy.get_buffer("1.num_batches_tracked") == 1
    model(rows(5))
    assert [len(calls) for calls in recorder.take().values()] == [1]
