"""Whole runs with --exact to which members come, leave and die: the bits of one device, or a refusal."""

import gc
from dataclasses import replace

import pytest
import torch
from nets import program
from random_members import disturbed, undisturbed, unlike

from nfold.core.job import Begun
from nfold.errors import ProgramError
from nfold.runtime.coordinator.same_on_all_ranks import Other, check_alike
from nfold.runtime.coordinator.same_program import check_same_program, recipe_of
from nfold.runtime.step.exact_sums import ExactSums
from nfold.verbs.ranks.thread_ranks import threads_put_back

TOLD = {
    "num_samples": 4, "orders": None, "weights": {}, "items": {}, "first_pass": None, "autocast": None,
    "has_test": False, "metrics": [], "stepping": None,
    "has_scheduler": False, "clip_norm": None, "has_collate": False, "averages": None,
    "gradients": {"checksum": 7, "fraction_bits": 40, "machine": "n1: AVX512, torch 2.13"},
}  # fmt: skip
OTHER = TOLD | {"gradients": {"checksum": 8, "fraction_bits": 40, "machine": "n2: AVX2, torch 2.13"}}


def exact_sums_in_memory() -> int:
    gc.collect()
    return sum(isinstance(each, ExactSums) for each in gc.get_objects())


@pytest.fixture(autouse=True)
def threads():
    with threads_put_back():
        torch.set_num_threads(1)
        yield


@pytest.mark.parametrize(
    ("strategy", "seed"),
    [
        ("ring", 2),
        *[pytest.param(*each, marks=pytest.mark.exhaustive) for each in (("ps", 13), ("pipeline", 13), ("hybrid", 13))],
        pytest.param("hypergraph", 13, marks=pytest.mark.exhaustive),
    ],
)
@pytest.mark.timeout(240)
def test_whoever_comes_leaves_or_dies_the_bits_are_one_devices(tmp_path, strategy, seed):
    mine = program("residual")
    found = disturbed(mine, tmp_path / "run", strategy, seed)
    assert {"kill", "part"} <= set(found.events)
    assert not exact_sums_in_memory(), "each generation would keep its model, buffers and gradients for ever"
    assert not unlike(found.state, undisturbed(mine, tmp_path / "alone", found.steps))


def test_a_host_that_computes_other_bits_is_refused_with_both_names():
    check_alike(TOLD, Other(1), TOLD)
    with pytest.raises(ProgramError, match=r"ranks 0 and 1 compute gradients of other bits .* n1: AVX512, .* n2: AVX2"):
        check_alike(TOLD, Other(1), OTHER)


def test_a_run_goes_on_neither_on_other_processors_nor_without_exact_sums():
    begun = Begun(batch_size=2, steps_per_epoch=2, recipe=recipe_of(TOLD))
    check_same_program(begun, 2, recipe_of(TOLD))
    with pytest.raises(ProgramError, match=r"first gradients of checksum 7, .* first gradients of checksum 8 now"):
        check_same_program(begun, 2, recipe_of(OTHER))
    with pytest.raises(ProgramError, match="the program has no --exact now"):
        check_same_program(begun, 2, replace(recipe_of(TOLD), gradients=None))
