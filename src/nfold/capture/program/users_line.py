"""Finds the user's own line of code that is being run."""

import ast
import itertools
import linecache
import sys
import traceback
from pathlib import Path
from types import FrameType

import torch

_TORCH, _OURS = str(Path(torch.__file__).parent), str(Path(__file__).parents[2])
_DISTRIBUTIONS = Path(_TORCH) / "distributions"
_LONGEST = 80
UNCHECKED = "torch.distributions checks its arguments: with validate_args=False"
"""What to do about that, for a sentence to end."""


def users_line() -> str:
    """Return `file, line n: code` of the innermost frame that is the user's, or else of a library's; empty if none."""
    frame = _users_frame()
    return _told(frame.f_code.co_filename, frame.f_lineno) if frame else ""


def users_call() -> str:
    """Return the name of the function that this frame is calling, as the code has it; empty if nobody can tell."""
    frame = _users_frame()
    if frame is None:
        return ""
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


def _users_frame() -> FrameType | None:
    library: FrameType | None = None
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if is_code(file):
            if "site-packages" not in file:
                return frame
            library = library or frame
        frame = frame.f_back
    return library


def is_code(file: str) -> bool:
    """Tell whether a file holds neither torch's code, nor nfold's, nor Python's."""
    is_pythons = file.startswith(_PYTHON) and not file.startswith(_INSTALLED)
    return not file.startswith((_TORCH, _OURS, "<")) and not is_pythons


_PYTHON = str(Path(linecache.__file__).parent) + "/"
_INSTALLED = tuple(f"{_PYTHON}{folder}/" for folder in ("site-packages", "dist-packages"))


def is_torchs(file: str) -> bool:
    """Tell whether a file holds torch's code."""
    return file.startswith(_TORCH)


def _told(file: str, line: int) -> str:
    code = linecache.getline(file, line).strip()
    code = code if len(code) <= _LONGEST else code[: _LONGEST - 3] + "..."
    return f"{file}, line {line}: {code}" if code else f"{file}, line {line}"


def users_line_of(error: BaseException) -> str:
    """Return the same of where an error was raised; empty if nothing of the user's was being run."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if is_code(frame.filename)]
    own = [frame for frame in frames if "site-packages" not in frame.filename] or frames
    return _told(own[-1].filename, own[-1].lineno or 0) if own else ""


def is_in_distributions(error: BaseException) -> bool:
    """Tell whether torch.distributions raised it, or what it has called: it checks the values that it is given."""
    frames = traceback.extract_tb(error.__traceback__)
    return any(Path(frame.filename).parent == _DISTRIBUTIONS for frame in frames)
