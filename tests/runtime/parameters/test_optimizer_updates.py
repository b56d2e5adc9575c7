"""Optimizer steps with a part of the learning rate, as asynchronous servers take them."""

import pytest
import torch
from torch import nn

from nfold.capture.optimizers.stepping import Stepping
from nfold.runtime.parameters.buffers import Piece
from nfold.runtime.parameters.held_pieces import Held
from nfold.runtime.parameters.optimizer_state import OptimizerState
from nfold.runtime.parameters.optimizer_updates import Updater

RATE = 0.25
"""A power of two: the product with the learning rate is the same number however it is come by."""


@pytest.mark.parametrize(
    "optimizer",
    [
        lambda weights: torch.optim.SGD(weights, lr=0.1, momentum=0.9),
        lambda weights: torch.optim.AdamW(weights, lr=0.1),
    ],
    ids=["SGD", "AdamW"],
)
def test_a_rate_multiplies_the_learning_rate_of_one_step(optimizer):
    ours, theirs = (nn.Parameter(torch.arange(1.0, 5.0)) for _ in range(2))
    updater, expected = Updater(Stepping(optimizer), [], [("w", ours)]), optimizer([theirs])
    for number, rate in enumerate((1.0, RATE, 1.0)):
        ours.grad, theirs.grad = (torch.tensor([0.5, -1.0, 2.0, 3.0]) * (number + 1) for _ in range(2))
        expected.param_groups[0]["lr"] = 0.1 * rate
        updater.step(rate)
        expected.step()
        assert torch.equal(ours, theirs)


def updater_of(weight, fused):
    stepping = Stepping(lambda weights: torch.optim.Adam(weights, lr=0.1, fused=fused))
    return Updater(stepping, [Held(Piece("w", 0, weight.numel(), 0), "w", weight)], [])


def reordered(value):
    return nn.Parameter(value.to(memory_format=torch.channels_last))


@pytest.mark.parametrize("fused", [False, True])
def test_state_is_restored_in_the_order_in_memory_that_its_parameter_has(fused):
    values, gradient = torch.randn(4, 3, 2, 2), torch.randn(4, 3, 2, 2)
    ours = reordered(values)
    ours.grad = torch.empty_like(ours).copy_(gradient)
    begun = updater_of(ours, fused)
    begun.step()
    again = reordered(ours.detach().clone())
    resumed = updater_of(again, fused)
    ((_, state, elementwise, _),) = begun.state()
    flat = {key: value.reshape(-1).clone() if value.dim() else value.clone() for key, value in state.items()}
    resumed.restore(lambda piece: (piece.name, OptimizerState(tensors={piece.name: flat}, elementwise=elementwise)), 1)
    for weight, updater in ((ours, begun), (again, resumed)):
        weight.grad = torch.empty_like(weight).copy_(gradient.flip(0))
        updater.step()
    assert torch.equal(ours, again)


def test_a_gradient_in_another_order_in_memory_than_its_parameter_is_applied_to_the_same_elements():
    values, gradient = torch.randn(4, 3, 2, 2), torch.randn(4, 3, 2, 2)
    plain, ours = nn.Parameter(values.clone()), reordered(values)
    for weight in (plain, ours):
        weight.grad = gradient.clone()  # as the bucket has it
        updater_of(weight, fused=True).step()
    assert torch.allclose(ours, plain, rtol=0.0, atol=1e-6)


def test_each_parameters_state_is_handed_over_before_the_next_is_read():
    def parameters():
        return [nn.Parameter(torch.arange(6.0).reshape(2, 3) + number) for number in range(4)]

    def updater(weights):
        held = [Held(Piece(f"w{at}", 0, 6, 6 * at), f"w{at}", weight) for at, weight in enumerate(weights)]
        return Updater(Stepping(lambda weights: torch.optim.AdamW(weights, lr=0.1)), held, [])

    ours, again = parameters(), parameters()
    begun, resumed = updater(ours), updater(again)
    for weight in ours:
        weight.grad = weight.detach().clone()
    begun.step()
    own, read = {piece.name: state for piece, state, *_ in begun.state()}, []

    def asked(piece):
        name = piece.name
        assert [piece.name for piece, state, *_ in resumed.state() if state] == read, "no more than one is under way"
        read.append(name)
        kept = {key: value.flatten().clone() if value.dim() else value.clone() for key, value in own[name].items()}
        handed.update({(name, key): value.data_ptr() for key, value in kept.items() if value.dim()})
        return name, OptimizerState(tensors={name: kept}, elementwise=frozenset({"exp_avg", "exp_avg_sq"}))

    handed: dict[tuple[str, str], int] = {}
    resumed.restore(asked, 1)
    assert read == ["w0", "w1", "w2", "w3"]
    found = {piece.name: state for piece, state, *_ in resumed.state()}
    assert all(torch.equal(found[name][key], own[name][key]) for name in own for key in own[name])
    assert handed == {(name, key): found[name][key].data_ptr() for name, key in handed}, "taken over, not copied"
