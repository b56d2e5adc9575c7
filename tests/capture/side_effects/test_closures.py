"""Functions in a copied model mean the copy."""

import functools

import pytest
import torch
from torch import nn

from nfold.capture.side_effects.module_states import fresh_copies


class Kept(nn.Module):
    """Reads what a hook has kept, through a function that means it."""

    def __init__(self, hang):
        super().__init__()
        self.a, self.b, self.kept = nn.Linear(2, 2), nn.Linear(2, 1), {}
        hang(self)

    def forward(self, x):
        self.a(x)
        return self.b(self.kept["a"])


def by_lambda(net):
    net.a.register_forward_hook(lambda module, inputs, output: net.kept.update(a=output))


def by_dict_in_closure(net):
    kept = net.kept

    def keep(module, inputs, output):
        kept["a"] = output

    net.a.register_forward_hook(keep)


def by_function_in_function(net):
    def under(name):
        return lambda module, inputs, output: net.kept.update({name: output})

    named = under("a")
    net.a.register_forward_hook(lambda *told: named(*told))


def by_partial(net):
    net.a.register_forward_hook(
        functools.partial(lambda name, module, inputs, output: net.kept.update({name: output}), "a")
    )


@pytest.mark.parametrize("hang", [by_lambda, by_dict_in_closure, by_function_in_function, by_partial])
def test_a_hook_of_a_copy_keeps_in_the_copy(hang):
    net, x = Kept(hang), torch.ones(3, 2)
    copied = fresh_copies(net, None)()
    found = copied(x)
    assert not net.kept
    assert torch.equal(found, net(x))


def test_functions_of_a_copy_share_what_they_count():
    net, counts = nn.Linear(1, 1), []

    def hang(module):
        calls = 0

        def before(*_):
            nonlocal calls
            calls += module is not None

        module.register_forward_pre_hook(before)
        module.register_forward_hook(lambda *_: counts.append(calls))

    hang(net)
    copied = fresh_copies(net, None)()
    for model in (copied, copied, net):
        model(torch.ones(1, 1))
    assert counts == [1, 2, 3]


def test_a_function_that_means_nothing_of_the_model_stays_the_same():
    net, seen = nn.Linear(1, 1), []
    net.register_forward_hook(lambda *_: seen.append(1))
    copied = fresh_copies(net, None)()
    assert [*copied._forward_hooks.values()] == [*net._forward_hooks.values()]
