"""Optimizers and schedules as people have them, beside those of `capture/keepers.py`."""

import torch
from torch.optim import SGD, Adam, Optimizer
from torch.optim import lr_scheduler as schedules


class PerWeight(Optimizer):
    """Updates each weight by itself, with a state of its own."""

    def __init__(self, params):
        super().__init__(params, {"lr": 0.05})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    p.sub_(group["lr"] * self.direction(p, self.state[p]))


class Factored(PerWeight):
    """Keeps means of rows and columns of squared gradients, as Adafactor of transformers does."""

    def direction(self, p, state):
        square = p.grad.square() + 1e-6
        if p.ndim < 2:
            return p.grad / state.setdefault("square", torch.zeros_like(p)).lerp_(square, 0.1).sqrt()
        rows = state.setdefault("rows", square.new_zeros(p.shape[:-1])).lerp_(square.mean(-1), 0.1)
        columns = state.setdefault("columns", square.new_zeros(p.shape[:-2] + p.shape[-1:]))
        columns.lerp_(square.mean(-2), 0.1)
        scale = (rows / rows.mean(-1, keepdim=True)).unsqueeze(-1) * columns.unsqueeze(-2)
        return p.grad / scale.sqrt()


class Preconditioned(PerWeight):
    """Multiplies gradients of matrices by inverses of what it has seen of their rows, as Shampoo does."""

    def direction(self, p, state):
        grad = p.grad.reshape(p.shape[0] if p.ndim else 1, -1)
        seen = state.setdefault("seen", torch.eye(len(grad), dtype=p.dtype))
        seen.add_(grad @ grad.T)
        return torch.linalg.solve(seen, grad).reshape(p.shape)


class Prodigal(Optimizer):
    """Finds a distance over all weights at once, as Prodigy and D-Adaptation do, and keeps it in its group."""

    def __init__(self, params):
        super().__init__(params, {"lr": 0.3, "d": 1e-2, "k": 0})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            found = [p for p in group["params"] if p.grad is not None]
            for p in found:
                self.state[p].setdefault("first", p.clone())
            moved = sum(float((p.grad * (self.state[p]["first"] - p)).sum()) for p in found)
            size = sum(float(p.grad.abs().sum()) for p in found)
            group["d"] = max(group["d"], moved / (size + 1e-12))
            group["k"] += 1
            for p in found:
                p.sub_(group["lr"] * group["d"] * p.grad.sign())


class ProdigalOutside(Prodigal):
    """Keeps the distance where state_dict() does not look."""

    def __init__(self, params):
        super().__init__(params)
        self.distance = 1e-2

    def step(self, closure=None):
        for group in self.param_groups:
            group["d"] = self.distance
        super().step()
        self.distance = self.param_groups[0]["d"]


class ScheduleFree(Optimizer):
    """Trains between two sequences of weights, and averages one, with a sum of squared rates in its group."""

    def __init__(self, params):
        super().__init__(params, {"lr": 0.1, "sum": 0.0, "k": 0})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            group["k"] += 1
            rate = group["lr"] * min(1.0, group["k"] / 3)
            group["sum"] += rate**2
            for p in group["params"]:
                if p.grad is not None:
                    z = self.state[p].setdefault("z", p.clone())
                    p.lerp_(z, rate**2 / group["sum"]).sub_(p.grad, alpha=0.1 * rate)
                    z.sub_(p.grad, alpha=rate)


class Sharp(Optimizer):
    """Evaluates the loss at two places in a step, as SAM does."""

    def __init__(self, params):
        super().__init__(params, {"lr": 0.1})

    def step(self, closure=None):
        if closure is None:
            raise ValueError("this optimizer needs a closure")
        self.param_groups[0]["params"][0].data.add_(closure())


class SharpInTwo(SGD):
    """Takes SAM's two halves by turns, as some write it: each with a batch of its own."""

    def __init__(self, params):
        super().__init__(params, lr=0.1)

    @torch.no_grad()
    def step(self, closure=None):
        for p in (p for group in self.param_groups for p in group["params"] if p.grad is not None):
            state = self.state[p]
            if "back" in state:
                p.sub_(state.pop("back")).sub_(p.grad, alpha=0.1)
            else:
                state["back"] = 0.05 * p.grad.clone()
                p.add_(state["back"])


class Looking(Optimizer):
    """Goes back to slow weights every third step; any optimizer within it makes the fast ones."""

    def __init__(self, params):
        self.inner = Adam(params, lr=0.05)
        super().__init__([p for group in self.inner.param_groups for p in group["params"]], {})
        self.param_groups = self.inner.param_groups
        self.count = 0

    @torch.no_grad()
    def step(self, closure=None):
        for p in (p for group in self.param_groups for p in group["params"]):
            self.state[p].setdefault("slow", p.clone())
        self.inner.step()
        self.count += 1
        if self.count % 3 == 0:
            for p, state in self.state.items():
                p.copy_(state["slow"].lerp_(p, 0.5))

    def state_dict(self):
        own = [self.state[p].get("slow") for group in self.param_groups for p in group["params"]]
        return {"inner": self.inner.state_dict(), "slow": own, "count": self.count}

    def load_state_dict(self, state):
        self.inner.load_state_dict(state["inner"])
        self.param_groups, self.count = self.inner.param_groups, state["count"]
        for p, slow in zip((p for group in self.param_groups for p in group["params"]), state["slow"], strict=True):
            if slow is not None:
                self.state[p]["slow"] = slow


class Averaging(SGD):
    """Keeps an average of the weights in each one's state."""

    def __init__(self, params):
        super().__init__(params, lr=0.1, momentum=0.9)

    @torch.no_grad()
    def step(self, closure=None):
        super().step()
        for p in (p for group in self.param_groups for p in group["params"]):
            self.state[p].setdefault("average", torch.zeros_like(p)).lerp_(p, 0.1)


class AveragingOutside(SGD):
    """Keeps averages in a list of its own, and goes back to them now and then."""

    def __init__(self, params):
        super().__init__(params, lr=0.1)
        self.averages = [p.detach().clone() for group in self.param_groups for p in group["params"]]

    @torch.no_grad()
    def step(self, closure=None):
        super().step()
        for average, p in zip(self.averages, (p for g in self.param_groups for p in g["params"]), strict=True):
            average.lerp_(p, 0.1)
            p.lerp_(average, 0.01)


class Centred(SGD):
    """Takes from each gradient its mean."""

    def __init__(self, params):
        super().__init__(params, lr=0.1, momentum=0.9)

    @torch.no_grad()
    def step(self, closure=None):
        for p in (p for group in self.param_groups for p in group["params"] if p.grad is not None):
            if p.ndim > 1:
                p.grad.sub_(p.grad.mean(dim=tuple(range(1, p.ndim)), keepdim=True))
        super().step()


class Adaptive(SGD):
    """Scales each weight's step by its norm over its gradient's, as LARS does."""

    def __init__(self, params):
        super().__init__(params, lr=0.1, momentum=0.9)

    @torch.no_grad()
    def step(self, closure=None):
        for p in (p for group in self.param_groups for p in group["params"] if p.grad is not None):
            p.grad.mul_((p.norm() + 1e-3) / (p.grad.norm() + 1e-3))
        super().step()


class Clipping(SGD):
    """Clips the norm of all gradients in step()."""

    def __init__(self, params):
        super().__init__(params, lr=0.1, momentum=0.9)

    def step(self, closure=None):
        torch.nn.utils.clip_grad_norm_([p for group in self.param_groups for p in group["params"]], 0.1)
        super().step()


class Accumulating(SGD):
    """Steps every second time, with the gradients of two."""

    def __init__(self, params):
        super().__init__(params, lr=0.1)

    @torch.no_grad()
    def step(self, closure=None):
        for p in (p for group in self.param_groups for p in group["params"] if p.grad is not None):
            held = self.state[p].pop("held", None)
            if held is None:
                self.state[p]["held"] = p.grad.clone()
            else:
                p.sub_(held + p.grad, alpha=0.1)


def groups_added(params):
    params = list(params)
    optimizer = SGD([p for p in params if p.ndim > 1] or params, lr=0.1, momentum=0.9)
    rest = [p for p in params if p.ndim <= 1]
    if len(rest) < len(params) and rest:
        optimizer.add_param_group({"params": rest, "lr": 0.01, "momentum": 0.5})
    return optimizer


def muon_and_adam(params):
    return Both(list(params))


class Both(Optimizer):
    """Muon for matrices, AdamW for all others."""

    def __init__(self, params):
        super().__init__(params, {"lr": 0.02})
        matrices, rest = [p for p in params if p.ndim == 2], [p for p in params if p.ndim != 2]
        self.inner = [torch.optim.Muon(matrices, lr=0.02)] if matrices else []
        self.inner += [torch.optim.AdamW(rest, lr=0.01)] if rest else []

    def step(self, closure=None):
        for each in self.inner:
            each.step()

    def state_dict(self):
        return {"inner": [each.state_dict() for each in self.inner]}

    def load_state_dict(self, state):
        for each, own in zip(self.inner, state["inner"], strict=True):
            each.load_state_dict(own)


def of(kind, **settings):
    return lambda params: kind(params, **settings)


OPTIMIZERS = {
    "Adafactor": of(torch.optim.Adafactor, lr=0.05),
    "Adafactor, weights by rms": of(torch.optim.Adafactor, lr=0.05, d=1.5, weight_decay=0.1),
    "Muon and AdamW": muon_and_adam,
    "ASGD": of(torch.optim.ASGD, lr=0.1, t0=2),
    "Rprop": of(torch.optim.Rprop, lr=0.01),
    "NAdam": of(torch.optim.NAdam, lr=0.01, decoupled_weight_decay=True, weight_decay=0.1),
    "RAdam": of(torch.optim.RAdam, lr=0.05),
    "Adadelta": of(torch.optim.Adadelta, lr=0.5),
    "Adagrad": of(torch.optim.Adagrad, lr=0.1, initial_accumulator_value=0.1),
    "Adamax": of(torch.optim.Adamax, lr=0.05),
    "AdamW amsgrad": of(torch.optim.AdamW, lr=0.05, amsgrad=True),
    "RMSprop": of(torch.optim.RMSprop, lr=0.01, momentum=0.9, centered=True),
    "tensor lr": of(torch.optim.AdamW, lr=torch.tensor(0.05), capturable=False, foreach=False),
    "Factored": Factored,
    "Preconditioned": Preconditioned,
    "Prodigal": Prodigal,
    "ScheduleFree": ScheduleFree,
    "SharpInTwo": SharpInTwo,
    "Looking": Looking,
    "Averaging": Averaging,
    "Centred": Centred,
    "Adaptive": Adaptive,
    "Clipping": Clipping,
    "Accumulating": Accumulating,
    "groups added": groups_added,
}
REFUSED = {
    "LBFGS": (of(torch.optim.LBFGS), "LBFGS evaluates the loss several times in a step"),
    "Sharp": (Sharp, r"step\(\) of Sharp, .* needs a closure .* without a closure"),
    "Muon": (of(torch.optim.Muon, lr=0.1), "Muon only supports 2D parameters"),
    "SparseAdam": (torch.optim.SparseAdam, "SparseAdam does not support dense gradients"),
}
UNKEPT = {
    "ProdigalOutside": (ProdigalOutside, "so that distance, param_groups[..]['d'] would begin anew"),
    "AveragingOutside": (AveragingOutside, "so that averages would begin anew"),
}


class Counter:
    """A rate that counts how often it was asked."""

    def __init__(self):
        self.calls = 0

    def __call__(self, step):
        self.calls += 1
        return 1 / (1 + 0.1 * self.calls)


SCHEDULES = {
    "chained": lambda o: schedules.ChainedScheduler(
        [schedules.ConstantLR(o, 0.5, total_iters=3), schedules.ExponentialLR(o, 0.8)]
    ),
    "sequential": lambda o: schedules.SequentialLR(
        o, [schedules.LinearLR(o, 0.1, total_iters=4), schedules.CosineAnnealingLR(o, 9)], [4]
    ),
    "one cycle": lambda o: schedules.OneCycleLR(o, max_lr=0.2, total_steps=12),
    "restarts": lambda o: schedules.CosineAnnealingWarmRestarts(o, T_0=3, T_mult=2),
    "counting": lambda o: schedules.LambdaLR(o, Counter()),
    "momentum": lambda o: schedules.CyclicLR(o, 0.01, 0.1, step_size_up=3, cycle_momentum=True),
    "multiplied": lambda o: schedules.MultiplicativeLR(o, lambda step: 0.9),
    "polynomial": lambda o: schedules.PolynomialLR(o, total_iters=7),
}
