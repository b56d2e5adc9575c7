"""Which statements are taken for a line, what they read and what they set."""

import ast

import pytest

from nfold.capture.statements.choice import choices
from nfold.capture.statements.effects import may_draw, only_counted, why_not_alone

BODY = """
def forward(self, x):
    y = 1
    for layer in self.layers:
        if x.max() > 3:
            scale = x.max()
            x = x / scale
        if y:
            break
    while y < 3:
        y = y + x.sum()
    if x.min() < 0:
        return x
    return x + y
"""


def chosen(line: int) -> list[tuple[tuple[int, int], bool, set[str], tuple[str, ...]]]:
    (function,) = ast.parse(BODY).body
    assert isinstance(function, ast.FunctionDef)
    return [(each.lines, each.returns, set(each.inputs), each.outputs) for each in choices(function, line)]


def test_the_smallest_first_with_what_it_reads_and_sets() -> None:
    assert chosen(5) == [((5, 7), False, {"x"}, ("x",)), ((4, 9), False, {"self", "x", "y"}, ("x",))]


def test_a_loop_is_taken_whole_where_a_part_leaves_it() -> None:
    assert chosen(8) == [((4, 9), False, {"self", "x", "y"}, ("x",))]


def test_the_condition_of_a_loop_takes_the_loop() -> None:
    assert chosen(10) == [((10, 11), False, {"x", "y"}, ("y",))]


def test_a_return_takes_the_rest_of_the_function() -> None:
    assert chosen(12) == [((12, 14), True, {"x", "y"}, ())]
    assert chosen(13) == [((13, 13), True, {"x"}, ()), ((12, 14), True, {"x", "y"}, ())]


def test_of_several_on_a_line_all_are_taken() -> None:
    (function,) = ast.parse("def forward(self, x):\n    y = x.numpy(); return self.layer(y)\n").body
    assert isinstance(function, ast.FunctionDef)
    assert [(each.lines, each.returns, set(each.inputs)) for each in choices(function, 2)] == [
        ((2, 2), True, {"self", "x"})
    ]


@pytest.mark.parametrize("line", ["self.x = 1", "yield x", "super().forward(x)", "x.__hidden", "x.grad", "del x"])
def test_what_no_function_could_do(line: str) -> None:
    assert why_not_alone(tuple(ast.parse(line).body))


@pytest.mark.parametrize(
    ("line", "draws"), [("torch.randn(3)", True), ("self.layer(x)", True), ("x.abs().max()", False)]
)
def test_what_may_draw(line: str, draws: bool) -> None:
    assert may_draw(tuple(ast.parse(line).body), {"self"}) == draws


@pytest.mark.parametrize(
    ("lines", "counts"), [("n += 1", True), ("n = x\nn += 1", False), ("for n in x: n += 1", False)]
)
def test_what_only_counts(lines: str, counts: bool) -> None:
    assert only_counted(tuple(ast.parse(lines).body), "n") == counts
