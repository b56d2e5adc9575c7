"""Which module is said to put out something else."""

import pytest

from nfold.core.outputs import ModuleOutput, first_difference


def put_out(module: str, norm: float, projection: float, *, is_coarse: bool = False) -> ModuleOutput:
    return ModuleOutput(module=module, norm=norm, projection=projection, is_coarse=is_coarse)


CALLS = [put_out("a (Conv2d)", 4.0, 1.0), put_out("b (Noise)", 2.0, -1.0), put_out("loss", 1.0, 1.0)]


def test_equal_calls_do_not_differ_nor_do_those_that_round_otherwise() -> None:
    assert first_difference(CALLS, CALLS) == ""
    rounded = [put_out(each.module, each.norm * (1 + 1e-5), each.projection - 1e-5) for each in CALLS]
    assert first_difference(CALLS, rounded) == ""
    assert first_difference([], []) == ""


@pytest.mark.parametrize("other", [put_out("b (Noise)", 2.1, -1.0), put_out("b (Noise)", 2.0, -0.9)])
def test_the_first_that_differs_is_named_whether_in_size_or_in_direction(other: ModuleOutput) -> None:
    later = put_out("loss", 9.0, 9.0)
    said = first_difference(CALLS, [CALLS[0], other, later])
    assert said.startswith("the output of the b (Noise) differs first, by ")


def test_from_half_precision_on_outputs_may_differ_more() -> None:
    half = [put_out("a (Conv2d)", 4.0, 1.0, is_coarse=True), *CALLS[1:]]
    near = [put_out(each.module, each.norm * 1.01, each.projection) for each in CALLS]
    assert first_difference(half, near) == ""
    assert "a (Conv2d) differs first, by 0.99 %" in first_difference(CALLS, near)
    far = [*near[:2], put_out("loss", 1.5, 1.5)]
    assert "the loss differs first, by 33 %" in first_difference(half, far)


def test_calls_of_other_modules_differ() -> None:
    assert first_difference(CALLS, CALLS[1:]) == "one computes the a (Conv2d) where the other computes the b (Noise)"
    assert first_difference(CALLS[:2], CALLS) == "one computes nothing more where the other computes the loss"


def test_what_is_left_where_much_cancels_out_may_be_all_rounding() -> None:
    before = put_out("a (Linear)", 4.0, 1.0)
    assert first_difference([before, put_out("loss", 0.0, 0.0)], [before, put_out("loss", 1e-4, 1e-4)]) == ""
    assert first_difference([before, put_out("loss", 0.0, 0.0)], [before, put_out("loss", 0.1, 0.1)]) != ""
