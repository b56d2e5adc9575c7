"""Which libraries a script imports before anything else: what may be imported for all ranks at once.

To import them does the same there as in the script, since nothing of the user's has run by then. At the first statement
that is no import of a library, this ends.
"""

import ast
import importlib.util
from collections.abc import Iterator
from pathlib import Path

from nfold.program import is_library

Import = tuple[str, tuple[str, ...]]
"""Name of a module, and what is taken from it, which may be modules, too."""
_OF_PYTHON = ("built-in", "frozen")


def library_imports(script: Path) -> list[Import]:
    """Return the imports of libraries that a script begins with; none where it cannot be read, or is in a package."""
    if (script.parent / "__init__.py").exists():
        return []
    try:
        statements = ast.parse(script.read_bytes()).body
    except (OSError, SyntaxError, ValueError):
        return []  # as each rank will say
    return list(_leading(statements, script.parent))


def _leading(statements: list[ast.stmt], folder: Path) -> Iterator[Import]:
    for each in statements:
        if isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant):
            continue  # a docstring
        if not isinstance(each, ast.Import | ast.ImportFrom):
            return
        found = list(_imports_of(each))
        if not all(_is_of_library(name, folder) for name, _ in found):
            return
        yield from found


def _imports_of(statement: ast.Import | ast.ImportFrom) -> Iterator[Import]:
    if isinstance(statement, ast.Import):
        yield from ((alias.name, ()) for alias in statement.names)
    else:
        yield "." * statement.level + (statement.module or ""), tuple(alias.name for alias in statement.names)


def _is_of_library(name: str, folder: Path) -> bool:
    """Whether a module is of Python or installed, and no file beside the script takes its place."""
    top = name.partition(".")[0]
    if not top or any(folder.glob(f"{top}.*")) or (folder / top).exists():
        return False
    spec = importlib.util.find_spec(top)
    if spec is None:
        return False
    if spec.origin is None:  # a package without __init__.py, which may lie in folders of libraries and of the user's
        folders = list(spec.submodule_search_locations or ())
        return bool(folders) and all(is_library(folder) for folder in folders)
    return spec.origin in _OF_PYTHON or is_library(spec.origin)
