"""Finds the user's own line of code that is being run, or at which an error was raised, to name it in messages."""

import ast
import itertools
import linecache
import os
import sys
import traceback
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import FrameType

import torch

_TORCH, _OURS = f"{Path(torch.__file__).parent}{os.sep}", f"{Path(__file__).parents[2]}{os.sep}"
_DISTRIBUTIONS = Path(_TORCH) / "distributions"
_PYTHON = f"{Path(linecache.__file__).parent}{os.sep}"
_INSTALLED = tuple(f"{_PYTHON}{folder}{os.sep}" for folder in ("site-packages", "dist-packages"))
_LONGEST = 80
UNCHECKED = "torch.distributions checks its arguments: with validate_args=False"
"""What to do about that, for a sentence to end."""

_Place = tuple[FrameType, int]
"""A frame, and the line that it executes."""


def place_here() -> str:
    """Return `code` (file:line) of the innermost line of the user's, or of a library's; empty if there is none."""
    return _told_first(_here())


def place_of(error: BaseException) -> str:
    """Return `code` (file:line) of where an error was raised, as `place_here` does."""
    return _told_first(_places_of(error))


def told_place(file: str, line: int) -> str:
    """Return a line and where it stands: `x = x / 2` (net.py:31)."""
    name, code = os.path.basename(file), _code(file, line)
    return f"`{code}` ({name}:{line})" if code else f"{name}:{line}"


def users_line() -> str:
    """Return `file, line n: code` of the innermost frame that is the user's, or else of a library's; empty if none."""
    return _told(_users_own(_here()))


def users_line_of(error: BaseException) -> str:
    """Return `file, line n: code` of where an error was raised; empty if nothing of the user's was running."""
    return _told(_users_own(_places_of(error)))


def users_call() -> str:
    """Return the name of the function that this frame is calling, as the code has it; empty if nobody can tell."""
    place = _users_own(_here())
    if place is None:
        return ""
    frame, _ = place
    line, end_line, begin, end = next(itertools.islice(frame.f_code.co_positions(), frame.f_lasti // 2, None))
    if line is None or end_line is None or begin is None or end is None:
        return ""
    lines = [each.encode() for each in linecache.getlines(frame.f_code.co_filename)[line - 1 : end_line]]
    if not lines:
        return ""
    lines[-1] = lines[-1][:end]
    lines[0] = lines[0][begin:]
    try:
        call = ast.parse(b"(" + b"".join(lines) + b")", mode="eval").body
    except SyntaxError:
        return ""
    function = call.func if isinstance(call, ast.Call) else None
    return str(getattr(function, "attr", getattr(function, "id", "")))


def is_code(file: str) -> bool:
    """Whether a file holds code that is not torch's, nfold's or Python's."""
    is_pythons = file.startswith(_PYTHON) and not file.startswith(_INSTALLED)
    return not file.startswith((_TORCH, _OURS, "<")) and not is_pythons


def is_torchs(file: str) -> bool:
    """Whether a file holds torch's code."""
    return file.startswith(_TORCH)


def is_in_distributions(error: BaseException) -> bool:
    """Tell whether torch.distributions raised it, or what it has called: it checks the values that it is given."""
    frames = traceback.extract_tb(error.__traceback__)
    return any(Path(frame.filename).parent == _DISTRIBUTIONS for frame in frames)


def _here() -> Iterator[_Place]:
    """Yield what is being run, innermost first, but for torch, nfold and Python."""
    return filter(_is_code, traceback.walk_stack(sys._getframe(1)))


def _places_of(error: BaseException) -> Iterator[_Place]:
    """Yield what was being run when an error was raised, innermost first, but for torch, nfold and Python."""
    return filter(_is_code, reversed(list(traceback.walk_tb(error.__traceback__))))


def _is_code(place: _Place) -> bool:
    return is_code(place[0].f_code.co_filename)


def _users_own(places: Iterable[_Place]) -> _Place | None:
    """Return the first that is no library's, or else the first."""
    found = list(places)
    own = (place for place in found if "site-packages" not in place[0].f_code.co_filename)
    return next(own, found[0] if found else None)


def _told_first(places: Iterator[_Place]) -> str:
    return next((told_place(frame.f_code.co_filename, line) for frame, line in places), "")


def _told(place: _Place | None) -> str:
    if place is None:
        return ""
    file, line = place[0].f_code.co_filename, place[1]
    code = _code(file, line)
    return f"{file}, line {line}: {code}" if code else f"{file}, line {line}"


def _code(file: str, line: int) -> str:
    code = linecache.getline(file, line).strip()
    return code if len(code) <= _LONGEST else f"{code[: _LONGEST - 3]}..."
