"""What a rank that trains alone gives to a newcomer: its gradients in buckets of several ranks, or why it cannot."""

import pytest
import torch
from torch import nn

from nfold.core.placement import Reduction
from nfold.core.tasks import Elements
from nfold.errors import RunError
from nfold.runtime.step.lent_sums import SumsAlone, flat_gradients

BUCKET = Reduction(
    name="b0", parameters=("one", "other"), num_elements=10, dtype="float64", item_bytes=8, members=(0,), route="ring",
    piece_elements=4,
)  # fmt: skip
"""Six elements of one parameter, and four of another."""


def gradients(**found: torch.Tensor | None) -> SumsAlone:
    """Of parameters with these."""
    parameters = {name: nn.Parameter(torch.zeros(6 if name == "one" else 4)) for name in ("one", "other", "frozen")}
    for name, gradient in found.items():
        parameters[name].grad = gradient

    def part(name: str, start: int, stop: int) -> torch.Tensor | None:
        gradient = found[name]
        return None if gradient is None else gradient[start:stop]

    return SumsAlone(0, (BUCKET,), parameters, part)


def test_all_elements_are_told_before_the_step_each_with_what_parameters_have():
    sums, told = gradients(one=torch.arange(6.0), other=torch.arange(6.0, 10.0)), []
    sums.tell(lambda elements: told.append(sums.values(elements)), told.append, 7)
    *found, step = told
    assert (torch.cat(found).tolist(), step) == (list(range(10)), 7)
    assert len(found) == 3, "in pieces"


@pytest.mark.parametrize("lacking", ["one", "other"])
def test_a_parameter_that_one_device_would_not_update_has_no_sum(lacking):
    sums = gradients(**({"one": torch.zeros(6), "other": torch.zeros(4)} | {lacking: None}))
    with pytest.raises(RunError, match=f"{lacking} got no gradient"):
        sums.values(Elements("gradient", "b0", 4, 8))


def test_a_gradient_that_several_ranks_would_not_sum_is_refused():
    sums = gradients(one=torch.zeros(6), other=torch.zeros(4), frozen=torch.zeros(4))
    with pytest.raises(RunError, match="frozen got a gradient"):
        sums.tell(sums.values, print, 0)


@pytest.mark.parametrize("gradient", [None, torch.ones(4).to_sparse()])
def test_a_weight_without_a_number_for_each_element_of_its_gradient_is_no_sum(gradient):
    parameters = {"one": nn.Parameter(torch.ones(2, 3)), "other": nn.Parameter(torch.ones(4))}
    parameters["one"].grad, parameters["other"].grad = torch.arange(6.0).view(2, 3), torch.ones(4)
    assert flat_gradients(BUCKET, parameters).tolist() == [0, 1, 2, 3, 4, 5, 1, 1, 1, 1]
    parameters["other"].grad = gradient
    with pytest.raises(RunError, match=r"other has (no|a sparse) gradient"):
        flat_gradients(BUCKET, parameters)
