"""Optimizers that keep state wherever one can keep it."""

import itertools

import torch
from torch import nn
from torch.optim import SGD, AdamW, Optimizer


class Outer(Optimizer):
    """Has an optimizer within."""

    def __init__(self, params):
        inner = SGD(params, lr=0.05, momentum=0.9)
        super().__init__([p for group in inner.param_groups for p in group["params"]], {})
        self.inner, self.param_groups = inner, inner.param_groups

    def step(self, closure=None):
        self.inner.step()

    def state_dict(self):
        return self.inner.state_dict()

    def load_state_dict(self, state):
        self.inner.load_state_dict(state)


class Two(Optimizer):
    """Has two within, one for matrices."""

    def __init__(self, params):
        params = list(params)
        super().__init__(params, {"lr": 0.1})
        self.matrices = SGD([p for p in params if p.ndim > 1], lr=0.05, momentum=0.9)
        self.others = AdamW([p for p in params if p.ndim <= 1], lr=0.01)

    def step(self, closure=None):
        self.matrices.step()
        self.others.step()

    def state_dict(self):
        return {"matrices": self.matrices.state_dict(), "others": self.others.state_dict()}

    def load_state_dict(self, state):
        self.matrices.load_state_dict(state["matrices"])
        self.others.load_state_dict(state["others"])


class Counting(SGD):
    """Decays by a counter that nobody keeps."""

    def __init__(self, params):
        super().__init__(params, lr=0.1)
        self.count = 0

    def step(self, closure=None):
        self.count += 1
        for group in self.param_groups:
            group["lr"] = 0.1 / self.count
        super().step()


class KeptCounting(Counting):
    """Decays by a counter that it keeps, beside numbers and tuples of all kinds."""

    def state_dict(self):
        return super().state_dict() | {"count": self.count, 3: (1.5, float("inf"), None, [True, "text"])}

    def load_state_dict(self, state):
        assert state[3] == (1.5, float("inf"), None, [True, "text"])
        self.count = state["count"]
        super().load_state_dict({key: state[key] for key in ("state", "param_groups")})


class GlobalKey(SGD):
    """Keeps a step beside its parameters' states, as torch allows."""

    def __init__(self, params):
        super().__init__(params, lr=0.1)

    def step(self, closure=None):
        self.state["count"] = self.state.get("count", 0) + 1
        for group in self.param_groups:
            group["lr"] = 0.1 / self.state["count"]
        super().step()


class ListInGroup(SGD):
    """Keeps a list of its last factors in its groups."""

    def __init__(self, params):
        super().__init__(params, lr=0.1)
        for group in self.param_groups:
            group["last"] = [1.0]

    def step(self, closure=None):
        for group in self.param_groups:
            group["last"] = [*group["last"][-2:], sum(group["last"]) / 4]
            group["lr"] = 0.1 * group["last"][-1]
        super().step()


class Lookahead(SGD):
    """Goes back to slow weights that it made when it was built, every fifth step."""

    def __init__(self, params):
        super().__init__(params, lr=0.1)
        self.slow = [p.detach().clone() for group in self.param_groups for p in group["params"]]
        self.count = 0

    @torch.no_grad()
    def step(self, closure=None):
        super().step()
        self.count += 1
        if self.count % 5 == 0:
            for slow, p in zip(self.slow, (p for g in self.param_groups for p in g["params"]), strict=True):
                slow.lerp_(p, 0.5)
                p.copy_(slow)


class KeptLookahead(Lookahead):
    """Keeps its slow weights."""

    def state_dict(self):
        return {"fast": super().state_dict(), "slow": self.slow, "count": self.count}

    def load_state_dict(self, state):
        super().load_state_dict(state["fast"])
        self.count = state["count"]
        for own, slow in zip(self.slow, state["slow"], strict=True):
            own.copy_(slow)


class Drawing(SGD):
    """Draws from a generator of its own."""

    def __init__(self, params):
        super().__init__(params, lr=0.1)
        self.generator = torch.Generator().manual_seed(0)

    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                p.grad += torch.randn(p.shape, generator=self.generator, dtype=p.dtype)
        super().step()


class KeptDrawing(Drawing):
    """Keeps where its generator is."""

    def state_dict(self):
        return super().state_dict() | {"generator": self.generator.get_state()}

    def load_state_dict(self, state):
        self.generator.set_state(state.pop("generator"))
        super().load_state_dict(state)


class Logging(SGD):
    """Notes what nothing comes of."""

    def __init__(self, params):
        super().__init__(params, lr=0.1, momentum=0.9)
        self.calls = 0

    def step(self, closure=None):
        self.calls += 1
        super().step()


class WithFunction(Outer):
    """Gives what no file can hold."""

    def state_dict(self):
        return self.inner.state_dict() | {"rule": abs}


class Iterating(SGD):
    """Takes its rates from an iterator."""

    def __init__(self, params):
        super().__init__(params, lr=0.1)
        self.rates = itertools.cycle([0.1, 0.2, 0.3])

    def step(self, closure=None):
        for group in self.param_groups:
            group["lr"] = next(self.rates)
        super().step()


KEPT = (Outer, Two, KeptCounting, GlobalKey, ListInGroup, KeptLookahead, KeptDrawing)
"""Those that a checkpoint keeps, through their own state_dict()."""
LOST = (Counting, Lookahead, Drawing, WithFunction, Iterating)


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 6), nn.Tanh(), nn.Linear(6, 2))
