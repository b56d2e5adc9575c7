"""What steps of an optimizer can reach outside of it."""

from collections import defaultdict

import torch

from nfold.capture.side_effects.shared_state import places_of_optimizer

SEEN = []


class Wrapping(torch.optim.Optimizer):
    """Wraps another one and leaves out the constructor of its class, as many do."""

    def __init__(self, inner):
        self.inner, self.param_groups = inner, inner.param_groups
        self.state, self.defaults = defaultdict(dict), inner.defaults

    def step(self, closure=None):
        SEEN.append(len(SEEN))
        return self.inner.step(closure)


def names(optimizer):
    return [name for name, _ in places_of_optimizer(optimizer)]


def test_an_optimizer_without_its_classs_constructor_has_no_hooks():
    assert any("SEEN" in name for name in names(Wrapping(torch.optim.SGD([torch.ones(1, requires_grad=True)]))))


def test_what_hooks_reach_is_found():
    plain = torch.optim.SGD([torch.ones(1, requires_grad=True)])
    assert names(plain) == []
    plain.register_step_post_hook(lambda *_: SEEN.append(0))
    assert any("SEEN" in name for name in names(plain))
