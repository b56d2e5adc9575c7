"""What the code of an optimizer's step may do later than any trial: known by what it calls, whether it ran or not."""

import gc
import os

import pytest
import torch

from nfold.capture.optimizers.step_code import StepCode


class _Stepping(torch.optim.SGD):
    """Whose subclasses differ in what they do after 5,000 steps, and in settings."""

    limit = 0.0
    num_steps = 0

    def __init__(self):
        super().__init__([torch.nn.Parameter(torch.ones(3))], lr=0.1)

    @property
    def weights(self):
        return [each for group in self.param_groups for each in group["params"]]

    def clip(self, weight):
        weight.mul_(self.limit / weight.norm())


class Elementwise(_Stepping):
    @torch.no_grad()
    def step(self, closure=None):
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self.num_steps += 1
        for weight in self.weights:
            state = self.state.setdefault(weight, {})
            if self.num_steps > 5000:
                weight.mul_(0.9).add_(torch.sign(weight), alpha=min(0.1, float(self.limit)))
            if self.limit < 0:
                os.kill(os.getpid(), 9)
                raise ValueError(f"a limit of {self.limit}")
            state["seen"] = max(self.num_steps, 1)
        return loss


class Normalising(_Stepping):
    def step(self, closure=None):
        self.num_steps += 1
        for weight in self.weights:
            weight.data.div_(weight.norm() if self.num_steps > 5000 else 2.0)


class OwnMethod(_Stepping):
    """Has a method that is called as one of torch's of single elements is."""

    def step(self, closure=None):
        self.num_steps += 1
        if self.num_steps % 5000 == 0:
            for weight in self.weights:
                self.clip(weight)


class Passing(_Stepping):
    def step(self, closure=None):
        self.num_steps += 1
        late = [] if self.num_steps < 5000 else [torch.norm]
        for each in late:
            each(self.weights[0])


class Chosen(_Stepping):
    def step(self, closure=None):
        self.num_steps += 1
        rules = {False: torch.sign, True: torch.norm}
        rules[self.num_steps > 5000](self.weights[0])


class Masked(_Stepping):
    """Computes each time what counts only later."""

    def step(self, closure=None):
        self.num_steps += 1
        late = torch.tensor(self.num_steps > 5000)
        for weight in self.weights:
            weight.data.copy_(torch.where(late, weight @ weight, weight))


class OfTorch(_Stepping):
    step = torch.optim.SGD.step


@pytest.mark.parametrize(
    ("kind", "name", "has_run"),
    [
        (Elementwise, None, None),
        (OfTorch, None, None),
        (Normalising, "norm", False),
        (OwnMethod, "clip", False),
        (Passing, "each", False),
        (Chosen, "rules[self.num_steps > 5000]", True),
        (Masked, "@", True),
    ],
)
def test_what_may_look_at_wholes_is_named_with_whether_it_ran(kind, name, has_run):
    optimizer, code = kind(), StepCode()
    for _ in range(3):
        with code.watch():
            optimizer.step()
    uses = code.uses(kind)
    assert code.is_empty == (kind is OfTorch)
    assert [(use.name, use.has_run) for use in uses[:1]] == ([] if name is None else [(name, has_run)])
    assert all(use.line.startswith("test_step_code.py:") for use in uses)


def test_code_whose_source_is_not_there_may_look_at_wholes():
    names = {"Base": _Stepping}
    exec("class Typed(Base):\n    def step(self, closure=None):\n        self.num_steps += 1\n", names)
    optimizer, code = names["Typed"](), StepCode()
    with code.watch():
        optimizer.step()
    assert [(use.name, use.has_run) for use in code.uses(names["Typed"])] == [("code without a source", False)]


def test_what_a_collection_of_garbage_calls_is_no_code_of_the_step():
    def called(phase, info):
        torch.norm(torch.ones(2))

    class Littering(_Stepping):
        def step(self, closure=None):
            for _ in range(2000):
                pair = [[]]
                pair[0].append(pair)

    gc.callbacks.append(called)
    optimizer, code = Littering(), StepCode()
    try:
        with code.watch():
            optimizer.step()
    finally:
        gc.callbacks.remove(called)
    assert not any(use.name == "norm" for use in code.uses(Littering))
    assert gc.isenabled()
