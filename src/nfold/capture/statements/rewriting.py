"""The user's functions as source, with calls in place of some statements, and such statements as functions.

def forward(self, x):                       def forward(self, x):
    x = self.first(x)                           x = self.first(x)
    if x.abs().max() > 3:           -->         (x,) = __nfold_hold__(0, locals())
        x = x / 2                               return self.last(x)
    return self.last(x)
"""

import ast
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import CodeType, FunctionType
from typing import Any

from nfold.capture.statements.choice import Choice

HOLD = "__nfold_hold__"
"""Name under which a rewritten function finds what it calls: (number of the statements, its variables) -> outputs."""
_FUTURE = 0x1FE0000
"""Flags of a code object that come from imports of `__future__`."""


def source_of(code: CodeType) -> ast.FunctionDef | None:
    """Return the definition of a function; None if its file has no such function (any more)."""
    for node in ast.walk(_parsed(code.co_filename)):
        if isinstance(node, ast.FunctionDef) and node.name == code.co_name and _first_line(node) == code.co_firstlineno:
            return node if _is_same(_compiled(node.body, node, code), code) else None
    return None


def rewritten(function: ast.FunctionDef, code: CodeType, chosen: Mapping[int, Choice]) -> CodeType | None:
    """Return the code of a function with calls in place of statements; None if it cannot take that of the function.

    Args:
        function: as it was written.
        code: of it.
        chosen: statements by number; none inside of others.
    """
    starts = {id(choice.statements[0]): (number, choice) for number, choice in chosen.items()}
    inside = {id(each) for choice in chosen.values() for each in choice.statements}
    changed = _Rewriting(starts, inside).visit(function)
    changed.body.append(_uses(code.co_freevars))
    found = _compiled(ast.fix_missing_locations(changed).body, function, code)
    return found if found is not None and found.co_freevars == code.co_freevars else None


def as_function(choice: Choice, names: Sequence[str], code: CodeType, namespace: dict[str, Any]) -> Callable[..., Any]:
    """Return statements as a function of variables, which returns what they return, or else all variables.

    Args:
        choice: the statements.
        names: of the function's parameters.
        code: of the function that the statements stand in.
        namespace: that function's globals.
    """
    body: list[ast.stmt] = list(choice.statements)
    if not choice.returns:
        body.append(ast.copy_location(ast.Return(ast.Call(ast.Name("locals", ast.Load()), [], [])), body[-1]))
    given = ast.arguments(
        posonlyargs=[], args=[ast.arg(name) for name in names], kwonlyargs=[], kw_defaults=[], defaults=[]
    )
    made = ast.FunctionDef(name=code.co_name, args=given, body=body, decorator_list=[])
    first, last = choice.lines
    made.lineno, made.end_lineno, made.col_offset, made.end_col_offset = first, last, 0, 0
    tree = ast.fix_missing_locations(ast.Module([made], []))
    module = compile(tree, code.co_filename, "exec", _flags(code), dont_inherit=True)
    (inner,) = [each for each in module.co_consts if isinstance(each, CodeType)]
    return FunctionType(inner, namespace)


class _Rewriting(ast.NodeTransformer):
    def __init__(self, starts: Mapping[int, tuple[int, Choice]], inside: set[int]) -> None:
        self._starts, self._inside = starts, inside

    def visit(self, node: ast.AST) -> Any:
        """Replace the first of some statements, leave out the others, and copy what holds any."""
        if id(node) in self._starts:
            return _call(*self._starts[id(node)])
        if id(node) in self._inside:
            return None
        return self.generic_visit(_shallow(node)) if isinstance(node, ast.stmt) else node


def _call(number: int, choice: Choice) -> ast.stmt:
    call = ast.parse(f"{HOLD}({number}, locals())").body[0].value  # type: ignore[attr-defined]
    if choice.returns:
        made: ast.stmt = ast.Return(call)
    elif choice.outputs:
        made = ast.Assign([ast.Tuple([ast.Name(name, ast.Store()) for name in choice.outputs], ast.Store())], call)
    else:
        made = ast.Expr(call)
    first = choice.statements[0]
    for node in ast.walk(made):
        ast.copy_location(node, first)
    return made


def _shallow(node: Any) -> Any:
    """Copy a node with its lists, so that the original stays as it is."""
    fields = {name: list(value) if isinstance(value, list) else value for name, value in ast.iter_fields(node)}
    return ast.copy_location(type(node)(**fields), node)


def _compiled(body: list[ast.stmt], function: ast.FunctionDef, code: CodeType) -> CodeType | None:
    """Compile a function with another body, as a part of its file: names mean there what they did."""
    own, function.body = function.body, body
    try:
        module = compile(_parsed(code.co_filename), code.co_filename, "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError):
        return None
    finally:
        function.body = own
    found = (each for each in _codes(module) if (each.co_name, each.co_firstlineno) == _place(code))
    return next(found, None)


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from _codes(each)


def _place(code: CodeType) -> tuple[str, int]:
    return code.co_name, code.co_firstlineno


def _uses(variables: tuple[str, ...]) -> ast.stmt:
    """Return a statement that is never executed and names variables: a function keeps those of functions around it."""
    return ast.If(ast.Constant(0), [ast.Pass(), *(ast.Expr(ast.Name(name, ast.Load())) for name in variables)], [])


def _is_same(found: CodeType | None, code: CodeType) -> bool:
    if found is None:
        return False
    parts = [(each.co_code, each.co_names, each.co_varnames, each.co_freevars) for each in (found, code)]
    return parts[0] == parts[1]


def _flags(code: CodeType) -> int:
    return code.co_flags & _FUTURE


def _first_line(node: ast.FunctionDef) -> int:
    return min([node.lineno, *(each.lineno for each in node.decorator_list)])


@functools.lru_cache(maxsize=16)
def _parsed(file: str) -> ast.Module:
    try:
        with open(file, encoding="utf-8") as source:
            return ast.parse(source.read())
    except (OSError, SyntaxError, ValueError):
        return ast.Module([], [])
