"""Finds which variables statements read as they were before, and which they set whatever branch they take."""

import ast
from collections.abc import Iterable


def read_before(statements: Iterable[ast.stmt]) -> set[str]:
    """Return the variables that statements may read before they set them."""
    return _block(statements, set())[0]


def surely_set(statements: Iterable[ast.stmt]) -> set[str]:
    """Return the variables that statements set in every branch."""
    return _block(statements, set())[1]


def _block(statements: Iterable[ast.stmt], known: set[str]) -> tuple[set[str], set[str]]:
    """Return what is read and not known, and what is known afterwards."""
    read, known = set[str](), set(known)
    for statement in statements:
        more, known = _statement(statement, known)
        read |= more
    return read, known


def _statement(statement: ast.stmt, known: set[str]) -> tuple[set[str], set[str]]:
    if isinstance(statement, ast.If):
        read = _loads(statement.test) - known
        branches = [_block(branch, known) for branch in (statement.body, statement.orelse)]
        return read.union(*(each for each, _ in branches)), branches[0][1] & branches[1][1]
    if isinstance(statement, (ast.For, ast.While)):
        read = _loads(statement.iter if isinstance(statement, ast.For) else statement.test) - known
        inside = known | (_stores(statement.target) if isinstance(statement, ast.For) else set())
        return read.union(_block(statement.body, inside)[0], _block(statement.orelse, known)[0]), known
    if isinstance(statement, ast.With):
        read = set().union(*(_loads(item.context_expr) for item in statement.items)) - known
        more, known = _block(statement.body, known.union(*(_stores(item) for item in statement.items)))
        return read | more, known
    read = _loads(statement) - known
    return read, known if isinstance(statement, (ast.Try, ast.Match)) else known | _stores(statement)


def _loads(node: ast.AST) -> set[str]:
    """Return the variables that are read; a comprehension's own among them do no harm."""
    changed = {id(each.target) for each in ast.walk(node) if isinstance(each, ast.AugAssign)}
    return {
        each.id
        for each in ast.walk(node)
        if isinstance(each, ast.Name) and (isinstance(each.ctx, ast.Load) or id(each) in changed)
    }


def _stores(node: ast.AST) -> set[str]:
    """Return the variables that are set for sure: no walrus behind an `and`, nothing of a comprehension."""
    inner = (ast.expr, ast.comprehension)
    waiting, found = [node], set[str]()
    while waiting:
        each = waiting.pop()
        if isinstance(each, ast.Name):
            found |= {each.id} if isinstance(each.ctx, ast.Store) else set()
        elif each is node or not isinstance(each, inner) or isinstance(each, (ast.Tuple, ast.List, ast.Starred)):
            waiting += ast.iter_child_nodes(each)
    return found
