"""Hooks of the user's on modules: they run as in a plain loop, also those that do nothing while a program is tried."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from cutting import assert_equal, play
from probes import Base
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import prune
from zoo import Net, rows

from nfold.capture.capture import capture
from nfold.capture.cutting.captured import Captured

LIMIT = 100.0
"""No trial comes near it."""


class Hookable(Base):
    """Has modules of torch's and of the user's to hang a hook on."""

    def __init__(self) -> None:
        super().__init__()
        self.block = nn.Sequential(nn.Linear(12, 12), nn.Tanhshrink())

    def between(self, x: torch.Tensor) -> torch.Tensor:
        return self.block(F.tanhshrink(x)) * 2.0


class BySize(Hookable):
    """Only torch.export follows it."""

    def between(self, x: torch.Tensor) -> torch.Tensor:
        return super().between(x) if type(x.shape[1]) is int else x


def clip(module: nn.Module, inputs: Any, outputs: Any) -> Any:
    return tuple(each.clamp(-LIMIT, LIMIT) for each in inputs)


def clip_before(module: nn.Module, outputs: Any) -> Any:
    return tuple(each.clamp(-LIMIT, LIMIT) for each in outputs)


def clip_legacy(module: nn.Module, inputs: Any, outputs: Any) -> Any:
    return tuple(each if each is None else each.clamp(-LIMIT, LIMIT) for each in inputs)


def bound(module: nn.Module, inputs: Any, output: Any) -> Any:
    return output.clamp(-LIMIT, LIMIT) if isinstance(output, torch.Tensor) else None


def bound_before(module: nn.Module, inputs: Any) -> Any:
    return tuple(each.clamp(-LIMIT, LIMIT) if isinstance(each, torch.Tensor) else each for each in inputs)


HOOKS: dict[str, Callable[[nn.Module], Any]] = {
    "backward": lambda module: module.register_full_backward_hook(clip),
    "before backward": lambda module: module.register_full_backward_pre_hook(clip_before),
    "legacy": lambda module: module.register_backward_hook(clip_legacy),
    "forward": lambda module: module.register_forward_hook(bound),
    "before forward": lambda module: module.register_forward_pre_hook(bound_before),
}


def net_with(hook: str, path: str, probe: type[Base] = Hookable) -> Net:
    def build() -> nn.Module:
        model = probe()
        HOOKS[hook](model.get_submodule(path))
        return model

    return Net(build, rows, lambda size: rows(size)[:, :5], F.mse_loss)


def found_by(net: Net) -> Captured:
    return capture(net.model(), net.loss, net.example(), rebuild=net.model)


def names(found: Captured) -> list[str]:
    return [operator.name for operator in found.graph.operators]


def gradients(net: Net, batch: Any) -> dict[str, Any]:
    model = net.model()
    loss = net.loss(model(batch[0]), batch[1])
    loss.backward()
    return {"loss": loss.detach()} | {name: each.grad for name, each in model.named_parameters()}


def assert_equals_a_plain_loop(found: Captured, net: Net) -> None:
    """Compare the finest cut where the hook acts, and make sure that it does."""
    inputs, target = net.example().batch(6, 9)
    batch = (inputs * 1e4, target)
    expected = gradients(net, batch)
    free = gradients(Net(Hookable, net.inputs, net.target, net.loss), batch)
    assert any(not torch.equal(expected[name], free[name]) for name in expected)
    assert_equal(play(found, [[name] for name in names(found)], batch), expected)


@pytest.mark.filterwarnings("ignore:Using a non-full backward hook")
@pytest.mark.parametrize("hook", HOOKS)
@pytest.mark.parametrize("path", ["block", "block.0", "last"])
def test_a_hook_runs_as_in_a_plain_loop(hook: str, path: str) -> None:
    net = net_with(hook, path)
    found = found_by(net)
    assert found.graph.capture == "fx"
    # A legacy hook on a layer is given the gradient of its weight as well, which is a sum over the batch.
    assert bool(found.graph.indivisible) == (hook == "legacy" and path != "block")
    assert found.graph.whole == (("block",) if path == "block" else ())
    assert {"first", "last"} < set(names(found))
    note = "kept whole, since no tracer runs their hooks as a call does: block"
    assert found.graph.notes == ((note,) if path == "block" else ())
    assert_equals_a_plain_loop(found, net)


@pytest.mark.filterwarnings("ignore:Full backward hook is firing")
@pytest.mark.parametrize("hook", ["before backward", "forward"])
def test_a_model_with_a_hook_of_its_own_is_one_operator(hook: str) -> None:
    net = net_with(hook, "")
    found = found_by(net)
    assert names(found) == ["model"]
    assert found.graph.notes[0] == "kept whole, since no tracer runs their hooks as a call does: the model itself"
    assert_equals_a_plain_loop(found, net)


@pytest.mark.parametrize("hook", ["backward", "forward"])
def test_a_model_with_hooks_is_not_exported(hook: str) -> None:
    assert found_by(Net(BySize, rows)).graph.capture == "export"
    net = net_with(hook, "block.0", BySize)
    found = found_by(net)
    assert found.graph.capture == "opaque"
    assert_equals_a_plain_loop(found, net)


def test_a_hook_on_every_module_keeps_the_model_whole() -> None:
    handle = nn.modules.module.register_module_forward_hook(bound)
    try:
        assert names(found_by(Net(Hookable, rows))) == ["model"]
    finally:
        handle.remove()


def test_hooks_of_torch_compute_the_weight_and_are_traced() -> None:
    def build() -> nn.Module:
        model = Hookable()
        prune.l1_unstructured(model.block[0], "weight", 0.5)
        return model

    assert found_by(Net(build, rows)).graph.whole == ()


class Watching(Hookable):
    """Hangs a hook of its own on a module when it is called, as libraries do to collect outputs."""

    def between(self, x: torch.Tensor) -> torch.Tensor:
        if not self.block._forward_hooks:
            self.block.register_forward_hook(lambda module, inputs, output: None)
        return super().between(x)


def test_hooks_that_forward_itself_hangs_on_a_module_keep_nothing_whole() -> None:
    assert found_by(Net(Watching, rows)).graph.whole == ()


def test_a_hook_that_looks_at_the_gradient_of_the_batch_forbids_chunks() -> None:
    def build() -> nn.Module:
        model = Hookable()
        model.block.register_full_backward_hook(
            lambda module, inputs, outputs: tuple(each / max(1.0, float(each.norm()) / LIMIT) for each in inputs)
        )
        return model

    assert "a hook or a backward function of the program looks at" in found_by(Net(build, rows)).graph.indivisible
