"""Lets a program that draws random numbers be compared with itself on other batches: every draw is the same number."""

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from nfold.capture.batches.tree import tensors_of

_DRAWN = 0.5
"""In the range of what is drawn evenly from 0 to 1, and nothing special to what is drawn otherwise."""
_DRAWS = frozenset(
    [
        "rand",
        "randn",
        "rand_like",
        "randn_like",
        "randint",
        "randint_like",
        "randperm",
        "random",
        "random_",
        "normal",
        "normal_",
        "normal_functional",
        "uniform",
        "uniform_",
        "bernoulli",
        "bernoulli_",
        "exponential",
        "exponential_",
        "cauchy",
        "cauchy_",
        "log_normal",
        "log_normal_",
        "geometric",
        "geometric_",
        "multinomial",
        "poisson",
        "binomial",
        "_standard_gamma",
        "_sample_dirichlet",
    ]
)
"""Of torch's operators; what else draws (dropout, noisy activations) is made of them."""


class SteadyDraws(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Give what torch draws one value: 0.5, or 0 where it is a whole number, and let dropout keep everything.

    So what is computed of a sample does not depend on how many others are computed with it, unless the program makes it
    so: a permutation of the batch becomes its first sample for all.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Compute, and put one number in the place of all that were drawn."""
        name = func.overloadpacket.__name__
        if name == "native_dropout":
            return args[0].clone(), torch.ones_like(args[0], dtype=torch.bool)
        if name == "rrelu_with_noise" and args[4]:  # which draws by itself
            noise = args[1].copy_(torch.where(args[0] > 0, 1.0, (args[2] + args[3]) / 2))
            return args[0] * noise
        found = func(*args, **(kwargs or {}))
        if name in _DRAWS:
            for tensor in tensors_of(found):
                tensor.fill_(_DRAWN if tensor.is_floating_point() or tensor.is_complex() else 0)
        return found
