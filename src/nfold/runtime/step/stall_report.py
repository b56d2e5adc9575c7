"""Says what a rank is behind in, from the stacks of its threads: which item, and which line of the user's.

A rank in one of its tasks waits for its own reading where the task is to load, or where it needs the generators that
reading holds. Files are named and not opened: the disk may be what hangs.
"""

import sys
import threading
from collections.abc import Iterator
from pathlib import PurePath
from types import CodeType, FrameType

from nfold.capture.batches.joining import read_item
from nfold.capture.computing.turn_lock import TurnLock
from nfold.program import is_library
from nfold.runtime.control.channel import Message
from nfold.runtime.data.chunk_loader import LOADS, ChunkLoader
from nfold.runtime.data.sample_reader import await_samples
from nfold.runtime.failures.stalls import RunningTask, TaskWatch

_DOING = {
    "LOAD": "read samples",
    "F": "computed a forward pass",
    "B": "computed a backward pass",
    "UPDATE": "updated weights",
}
"""In words that follow `has`, by the task's kind."""
_AWAITS_READING = tuple(
    each.__code__ for each in (ChunkLoader.get, ChunkLoader.read_again, ChunkLoader.read_apart, TurnLock.__enter__)
)


def stall_told(tasks: TaskWatch, now_s: float) -> Message | None:
    """Return what to tell the coordinator of a task that takes far too long; None: there is none.

    Args:
        tasks: of the rank.
        now_s: by their clock.
    """
    stall = tasks.look(now_s, _awaits_others)
    if stall is None:
        return None
    stacks, task = _stacks(stall.task), stall.task
    reads = any(frame.f_code in _AWAITS_READING for frame in stacks[0])
    looked_at = stacks[1:] if reads else stacks[:1]
    return {
        "doing": _DOING["LOAD" if reads else task.kind],
        "seconds": stall.seconds,
        "step": task.step,
        "step_s": stall.step_s,
        "at": [each for each in (_item(looked_at), _own_line(looked_at)) if each],
    }


def _awaits_others(task: RunningTask) -> bool:
    """Whether a thread of the task waits for samples that another rank is to send."""
    return any(frame.f_code is await_samples.__code__ for stack in _stacks(task) for frame in stack)


def _stacks(task: RunningTask) -> list[list[FrameType]]:
    """Return the frames of the thread that does a task, and of those that read for it, innermost first."""
    frames = sys._current_frames()
    readers = [each.ident for each in threading.enumerate() if each.name.startswith(LOADS)]
    return [list(_frames(frames.get(thread or 0))) for thread in (task.thread, *readers)]


def _frames(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _item(stacks: list[list[FrameType]]) -> str:
    """Return the item that is being read; empty: none is."""
    code: CodeType = read_item.__code__
    local = next((frame.f_locals for stack in stacks for frame in stack if frame.f_code is code), None)
    return "" if local is None else f"item {local['index']} of {local['what']}()"


def _own_line(stacks: list[list[FrameType]]) -> str:
    """Return the innermost line of the user's; empty: there is none."""
    frames = (frame for stack in stacks for frame in stack)
    own = next((frame for frame in frames if not is_library(frame.f_code.co_filename)), None)
    return "" if own is None else f"{PurePath(own.f_code.co_filename).name}, line {own.f_lineno}"
