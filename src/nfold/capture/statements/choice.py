"""Finds the smallest statements around a line that can be called as a function of the variables which they use."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from nfold.capture.statements.effects import why_not_alone
from nfold.capture.statements.variables import read_before, surely_set

Function = ast.FunctionDef


@dataclass(frozen=True, slots=True)
class Choice:
    """Consecutive statements of one block.

    Attributes:
        statements: of the function.
        returns: whether their end is the end of the function.
        inputs: variables that they may read.
        outputs: variables that they may set and that others may read.
    """

    statements: tuple[ast.stmt, ...]
    returns: bool
    inputs: frozenset[str]
    outputs: tuple[str, ...]

    @property
    def lines(self) -> tuple[int, int]:
        """The numbers of the first and the last line."""
        return self.statements[0].lineno, self.statements[-1].end_lineno or self.statements[-1].lineno


def choices(function: Function, line: int) -> Iterator[Choice]:
    """Yield what may be called as a function instead, the smallest first: of one line, all. O(function)."""
    path = _path(function, line)
    for depth in range(len(path) - 1, -1, -1):
        block, index = path[depth]
        statements = tuple(each for each in block[index:] if each.lineno <= line or each is block[index])
        returns = isinstance(statements[-1], ast.Return)
        if not returns and any(isinstance(node, ast.Return) for node in _own_nodes(statements)):
            if depth > 0:
                continue  # the code that follows an inner block is not its own
            statements, returns = tuple(block[index:]), True
        is_tried = any(isinstance(outer[at], ast.Try) for outer, at in path[:depth])
        if is_tried or _leaves_loop(statements) or why_not_alone(statements):
            continue
        is_repeated = any(isinstance(outer[at], (ast.For, ast.While)) for outer, at in path[:depth])
        yield _choice(function, statements, returns=returns, is_repeated=is_repeated)


def why_none(function: Function, line: int) -> str:
    """Say what the smallest statement around a line does that no function in its place could; empty if nothing."""
    path = _path(function, line)
    return why_not_alone((path[-1][0][path[-1][1]],)) if path else ""


def _path(function: Function, line: int) -> list[tuple[list[ast.stmt], int]]:
    """Return the blocks around a line, with the place of the statement in each, outermost first."""
    path: list[tuple[list[ast.stmt], int]] = []
    block = function.body
    while True:
        around = (i for i, each in enumerate(block) if each.lineno <= line <= (each.end_lineno or each.lineno))
        index = next(around, None)
        if index is None:
            return path
        path.append((block, index))
        inner = [each for each in _blocks(block[index]) if each[0].lineno <= line <= (each[-1].end_lineno or 0)]
        if not inner:
            return path
        block = inner[0]


def _blocks(statement: ast.stmt) -> Iterator[list[ast.stmt]]:
    if isinstance(statement, (ast.FunctionDef, ast.ClassDef, ast.AsyncFunctionDef)):
        return
    for name in ("body", "orelse", "finalbody"):
        if block := getattr(statement, name, None):
            yield block
    for inner in (*getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
        yield inner.body


def _choice(function: Function, statements: tuple[ast.stmt, ...], *, returns: bool, is_repeated: bool) -> Choice:
    inside = {id(node) for each in statements for node in ast.walk(each)}
    names = [node for node in ast.walk(function) if isinstance(node, ast.Name)]
    changed = {id(node.target) for node in ast.walk(function) if isinstance(node, ast.AugAssign)}
    stored = {each.id for each in names if id(each) in inside and not isinstance(each.ctx, ast.Load)}
    stored |= {name for each in statements for node in ast.walk(each) if (name := _name_of_error(node))}
    outside = (each for each in names if id(each) not in inside)
    read = {each.id for each in outside if isinstance(each.ctx, ast.Load) or id(each) in changed}
    before = read_before(statements)
    outputs = set() if returns else stored & (read | before if is_repeated else read)
    return Choice(statements, returns, frozenset(before | (outputs - surely_set(statements))), tuple(sorted(outputs)))


def _name_of_error(node: ast.AST) -> str | None:
    return node.name if isinstance(node, ast.ExceptHandler) else None


def _own_nodes(statements: tuple[ast.stmt, ...]) -> Iterator[ast.AST]:
    """Yield the nodes of statements, but not those of functions inside."""
    waiting: list[ast.AST] = list(statements)
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, (ast.FunctionDef, ast.Lambda, ast.ClassDef, ast.AsyncFunctionDef)):
            waiting += ast.iter_child_nodes(node)


def _leaves_loop(statements: tuple[ast.stmt, ...]) -> bool:
    """Tell whether statements end or go on with a loop that they are only a part of."""

    def leaves(node: ast.AST) -> bool:
        if isinstance(node, (ast.Break, ast.Continue)):
            return True
        if isinstance(node, (ast.For, ast.While)):
            return any(map(leaves, node.orelse))
        return any(map(leaves, ast.iter_child_nodes(node)))

    return any(map(leaves, statements))
