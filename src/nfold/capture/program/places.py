"""Finds the line of the user's program that is being executed, to name it in messages."""

import linecache
import os
import sys
import traceback
from collections.abc import Iterable
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from types import FrameType

_PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))) + os.sep
_TORCH = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep
_LONGEST = 80


def place_here() -> str:
    """Return the innermost line of the user's that is being executed; empty if there is none."""
    frames = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        frames.append((frame.f_code.co_filename, frame.f_lineno))
        frame = frame.f_back
    return _first(frames)


def place_of(error: BaseException) -> str:
    """Return the innermost line of the user's through which an error came; empty if there is none."""
    frames = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    return _first(reversed(frames))


def is_users(file: str) -> bool:
    """Tell whether code is neither nfold's nor torch's, and in a file."""
    return not file.startswith((_PACKAGE, _TORCH, "<"))


def _first(frames: Iterable[tuple[str, int]]) -> str:
    for file, line in frames:
        if is_users(file):
            text = linecache.getline(file, line).strip()
            shown = f"{text[: _LONGEST - 3]}..." if len(text) > _LONGEST else text
            return f"`{shown}` ({os.path.basename(file)}:{line})" if shown else f"{os.path.basename(file)}:{line}"
    return ""
