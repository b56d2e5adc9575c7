"""What statements do beside setting variables: what a function in their place could not do, and what it writes to."""

import ast
import builtins
import re
from collections.abc import Iterator

_NEVER = (
    *(ast.Yield, ast.YieldFrom, ast.Await, ast.Global, ast.Nonlocal, ast.Delete, ast.Import, ast.ImportFrom),
    *(ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.AsyncFor, ast.AsyncWith),
)
_NAMES = {"super", "locals", "globals", "vars", "eval", "exec", "setattr", "delattr", "__class__"}
_DRAWS = re.compile("rand|dropout|bernoulli|normal|uniform|multinomial|exponential|cauchy|choice|shuffle|sample")
_HISTORY = {"requires_grad", "requires_grad_", "grad", "grad_fn", "is_leaf", "backward", "register_hook", "retain_grad"}
"""Attributes that look at how a tensor was computed: across a cut it comes without."""
_READING = {"items", "keys", "values", "get", "index", "count", "copy"}
"""Methods of lists and dicts that change nothing."""


def why_not_alone(statements: tuple[ast.stmt, ...]) -> str:
    """Say what statements do that no function in their place could; empty if nothing."""
    for node in _nodes(statements):
        if isinstance(node, _NEVER):
            return f"has a {type(node).__name__}"
        if isinstance(node, ast.Name) and node.id in _NAMES:
            return f"uses {node.id}"
        name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
        if name.startswith("__") and not name.endswith("__"):
            return f"uses {name}"  # it is another name inside of its class
        if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
            return f"sets .{node.attr}"
        if isinstance(node, ast.Attribute) and node.attr in _HISTORY:
            return f"uses {_shown(node)}"
    stored = {node.id for node in _nodes(statements) if isinstance(node, ast.Name)}
    return next((f"writes to {name}" for name in _written(statements) if name not in stored), "")


def _shown(attribute: ast.Attribute) -> str:
    """Return an attribute as it is written, where that is a name with dots; else only its own name."""
    text = ast.unparse(attribute)
    return text if re.fullmatch(r"[\w.]+", text) else f".{attribute.attr}"


def written_variables(statements: tuple[ast.stmt, ...]) -> set[str]:
    """Return the variables to whose values statements may write in place, or to what they hold."""
    return set(_written(statements))


def only_counted(statements: tuple[ast.stmt, ...], name: str) -> bool:
    """Whether a variable is set by `name += ..` alone. Where it held a number before, nothing else is written to."""
    nodes = _nodes(statements)
    counted = {id(node.target) for node in nodes if isinstance(node, ast.AugAssign)}
    stored = [node for node in _nodes(statements) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
    return all(id(node) in counted for node in stored if node.id == name)


def attributes_of(nodes: tuple[ast.AST, ...], name: str) -> set[str] | None:
    """Return the attributes that are read of a variable; None if it is used in any other way."""
    uses = {id(node) for node in _nodes(nodes) if isinstance(node, ast.Name) and node.id == name}
    read = [node for node in _nodes(nodes) if isinstance(node, ast.Attribute) and id(node.value) in uses]
    return {node.attr for node in read} if len(read) == len(uses) else None


def changes_container(statements: tuple[ast.stmt, ...], name: str) -> bool:
    """Whether statements may change the list or dict that a variable holds."""
    return name in written_variables(statements) or any(
        isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == name
        and node.attr not in _READING
        for node in _nodes(statements)
    )


def may_draw(statements: tuple[ast.stmt, ...], modules: set[str]) -> bool:
    """Whether statements may draw random numbers: by a name that says so, or in code that is not looked into."""
    for call in (node.func for node in _nodes(statements) if isinstance(node, ast.Call)):
        if isinstance(call, ast.Name) and not hasattr(builtins, call.id):
            return True
        if isinstance(call, ast.Attribute) and (_root(call) in modules or _DRAWS.search(call.attr)):
            return True
    return False


def _written(statements: tuple[ast.stmt, ...]) -> Iterator[str]:
    """Yield the variable whose value is written to by each operation in place; empty for another value."""
    for node in _nodes(statements):
        if isinstance(node, ast.AugAssign):
            yield _root(node.target)
        elif isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
            yield _root(node)
        elif isinstance(node, ast.Call):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else ""
            if called.endswith("_") and not called.endswith("__") and isinstance(node.func, ast.Attribute):
                yield _root(node.func.value)
            for keyword in node.keywords:
                if keyword.arg == "out" or (keyword.arg == "inplace" and getattr(keyword.value, "value", True)):
                    yield _root(keyword.value if keyword.arg == "out" else node.args[0] if node.args else node)


def _root(node: ast.AST) -> str:
    while isinstance(node, (ast.Attribute, ast.Subscript, ast.Call, ast.Starred)):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def _nodes(statements: tuple[ast.AST, ...]) -> Iterator[ast.AST]:
    for each in statements:
        yield from ast.walk(each)
