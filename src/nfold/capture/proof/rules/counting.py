"""Sizes and numbers as multiples of the number of samples, which is a symbol while a program is followed."""

from collections.abc import Callable
from typing import Any

import sympy
import torch


class SampleCount:
    """The symbol that stands for the number of samples."""

    def __init__(self, size: Any) -> None:
        self.symbol = size.node.expr
        self.size = size

    def multiple(self, size: Any) -> int:
        """Return how many times the number of samples a size is; 0 if it does not depend on it, -1 if otherwise."""
        expression = expression_of(size)
        if self.symbol not in expression.free_symbols:
            return 0
        times = sympy.simplify(expression / self.symbol)
        return int(times) if times.is_integer and times.is_number else -1

    def power(self, number: Any) -> int | None:
        """Return 1 for a multiple of the number of samples, -1 for one over it, 0 for a constant; None for others."""
        expression = expression_of(number)
        if not expression.free_symbols:
            return 0
        for power in (1, -1):
            if not sympy.simplify(expression / self.symbol**power).free_symbols:
                return power
        return None

    def parts(self, size: Any) -> tuple[int, int] | None:
        """Return a and b of a size that is a x samples + b; None if it is not."""
        expression = expression_of(size)
        slope = sympy.simplify(sympy.diff(expression, self.symbol)) if expression.free_symbols else sympy.Integer(0)
        rest = sympy.simplify(expression - slope * self.symbol)
        return (int(slope), int(rest)) if slope.is_Integer and rest.is_Integer else None


def expression_of(number: Any) -> sympy.Expr:
    """Return a number as an expression; those of torch's own functions are written as ordinary ones."""
    if isinstance(number, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        expression = number.node.expr
        return expression.replace(
            lambda each: type(each).__name__ in _ORDINARY, lambda each: _ORDINARY[type(each).__name__](*each.args)
        )
    return sympy.sympify(complex(number) if isinstance(number, complex) else number)


_ORDINARY: dict[str, Callable[..., Any]] = {
    "IntTrueDiv": lambda one, other: one / other,
    "FloatTrueDiv": lambda one, other: one / other,
    "ToFloat": lambda one: one,
}


def symbols_of(number: Any) -> frozenset[Any]:
    """Return the symbols in a number; none in an ordinary one."""
    if isinstance(number, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return frozenset(number.node.expr.free_symbols)
    return frozenset()
