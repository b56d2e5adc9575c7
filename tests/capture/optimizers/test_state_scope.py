"""An optimizer's state is kept so that a run goes on bit for bit, or the program is refused."""

import json

import keepers
import pytest
import torch

from nfold.capture.optimizers.state_scope import keeping
from nfold.capture.optimizers.state_tree import CannotHold, from_tree, to_tree
from nfold.capture.optimizers.stepping import Stepping
from nfold.capture.optimizers.update_scope import update_scope
from nfold.errors import ProgramError


def kept(factory, scheduler=None):
    stepping, model = Stepping(factory, scheduler), keepers.net()
    return keeping(stepping, model, update_scope(stepping, model).scope)


@pytest.mark.parametrize("kind", keepers.KEPT)
def test_what_state_dict_gives_is_kept_whole(kind):
    found = kept(kind)
    assert (found.scope, found.form, found.unkept, found.note) == ("model", "whole", "", "")


@pytest.mark.parametrize("kind", keepers.LOST)
def test_what_nothing_keeps_is_refused_by_name(kind):
    found = kept(kind)
    assert kind.__name__ in found.unkept
    assert "--checkpoint-every 0" in found.unkept
    names = {"Counting": "count", "Lookahead": "slow", "Drawing": "generator", "WithFunction": "['rule']"}
    assert names.get(kind.__name__, "rates") in found.unkept


SLOW, FIRST, MASKS = {}, {}, {}
_calls = 0


class InGlobal(torch.optim.SGD):
    """Every fourth step mixes with what a dict of the module keeps."""

    def step(self, closure=None):
        super().step()
        group = self.param_groups[0]
        group["n"] = group.get("n", 0) + 1
        if group["n"] % 4 == 0:
            self.mix(group["params"])

    @torch.no_grad()
    def mix(self, params):
        for index, p in enumerate(params):
            p.lerp_(SLOW.get(index, p), 0.5)
            SLOW[index] = p.clone()


class InNumber(torch.optim.SGD):
    def step(self, closure=None):
        global _calls
        _calls += 1
        for group in self.param_groups:
            group["lr"] = 0.1 / _calls
        super().step()


class Counting(torch.optim.SGD):
    """Counts for somebody who looks."""

    steps = 0

    def step(self, closure=None):
        Counting.steps += 1
        super().step()


class AtFirst(torch.optim.SGD):
    """Is drawn to the weights of its first step."""

    @torch.no_grad()
    def step(self, closure=None):
        super().step()
        group = self.param_groups[0]
        group["n"] = group.get("n", 0) + 1
        if group["n"] == 1:
            FIRST[0] = [p.clone() for p in group["params"]]
        for p, first in zip(group["params"], FIRST[0], strict=True):
            p.lerp_(first, 0.1)


class Within(torch.optim.SGD):
    def __init__(self, params, lr):
        super().__init__(params, lr=lr)
        self.inner = InGlobal(self.param_groups[0]["params"], lr=lr)

    def step(self, closure=None):
        self.inner.step()


class Caching(torch.optim.SGD):
    """Keeps what follows from shapes alone."""

    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                MASKS.setdefault(p.shape, torch.ones(p.shape))
        super().step()


@pytest.mark.parametrize(
    ("kind", "name"), [(InGlobal, "SLOW"), (InNumber, "_calls"), (AtFirst, "FIRST"), (Within, "SLOW")]
)
def test_what_steps_keep_outside_of_the_optimizer_is_refused(kind, name):
    with pytest.raises(ProgramError, match=f"changes {name}, which lies outside"):
        kept(lambda params: kind(params, lr=0.1))


def test_a_counter_around_the_class_is_refused():
    count = [0]

    class Counted(torch.optim.SGD):
        def step(self, closure=None):
            count[0] += 1
            if count[0] % 2:
                super().step()

    with pytest.raises(ProgramError, match="changes count, which lies outside"):
        kept(lambda params: Counted(params, lr=0.1))


def test_what_nothing_comes_of_outside_of_the_optimizer_is_told():
    found = kept(lambda params: Counting(params, lr=0.1))
    assert (found.form, found.unkept, found.forgets) == ("pieces", "", ("Counting.steps",))
    assert "changes Counting.steps, which lies outside" in found.note


def test_a_cache_outside_of_the_optimizer_is_no_state():
    assert kept(lambda params: Caching(params, lr=0.1)).unkept == ""


def test_what_changes_nothing_is_told():
    found = kept(keepers.Logging)
    assert (found.form, found.unkept) == ("pieces", "")
    assert "calls" in found.note


@pytest.mark.parametrize(
    "factory",
    [
        lambda params: torch.optim.SGD(params, lr=0.1, momentum=0.9),
        lambda params: torch.optim.Adam(params, lr=0.1, fused=True),
        lambda params: torch.optim.AdamW(params, lr=torch.tensor(0.1), amsgrad=True),
        torch.optim.RMSprop,
        torch.optim.ASGD,
    ],
)
def test_optimizers_of_torch_stay_in_pieces(factory):
    found = kept(factory)
    assert (found.scope, found.form, found.unkept, found.note) == ("element", "pieces", "", "")


def test_a_schedule_that_draws_is_refused():
    def noisy(optimizer):
        return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda _: float(torch.rand(())))

    with pytest.raises(ProgramError, match="is not the same when it is built again"):
        kept(lambda params: torch.optim.SGD(params, lr=0.1), noisy)


def test_a_schedule_that_follows_the_optimizer_is_refused():
    class Following(torch.optim.lr_scheduler.LRScheduler):
        total = 0.0

        def get_lr(self):
            weight = self.optimizer.param_groups[0]["params"][0]
            self.total += float(weight.detach().square().sum())
            return [0.1 / (1 + self.total) for _ in self.base_lrs]

    found = kept(lambda params: torch.optim.SGD(params, lr=0.1, momentum=0.9), Following)
    assert "would not go on after --resume" in found.unkept


def test_a_tree_comes_back_as_it_was():
    strided = torch.arange(24.0).reshape(1, 2, 3, 4).to(memory_format=torch.channels_last)
    value = {0: (1, 2.5, float("-inf")), "a": [None, True, "b", {"c": torch.ones(2)}], (1, 2): strided}
    tree = to_tree(value)
    found = from_tree(json.loads(json.dumps(tree.plain, allow_nan=False)), tree.tensors.__getitem__)
    assert found[0] == value[0]
    assert found["a"][:3] == [None, True, "b"]
    assert torch.equal(found["a"][3]["c"], torch.ones(2))
    assert torch.equal(found[1, 2], strided)
    assert found[1, 2].stride() == strided.stride()


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"a": [abs]}, r"\['a'\]\[0\] is a function \(abs\)"),
        ({"a": {1}}, r"\['a'\] is a set"),
        ({"a": torch.eye(2).to_sparse()}, r"\['a'\] is a sparse tensor"),
        ({"a": torch.zeros(1, dtype=torch.complex128)}, r"\['a'\] is a tensor of torch.complex128"),
    ],
)
def test_what_no_file_holds_is_named(value, words):
    with pytest.raises(CannotHold, match=words):
        to_tree(value)
