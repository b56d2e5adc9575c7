"""One line per job that says how far it is, how fast, and what its time goes to.

    epoch 2/10 41 %  loss 0.31  812 samples/s  compute 78 % network 12 % wait 6 % input 4 %  ETA 0:14

On a terminal the line is rewritten in place, at most ten times a second, and stays where it tells an evaluation.
Elsewhere it is printed as a plain line now and then and at the end of an epoch, and nothing but text is ever written.
Of many epochs that are short, the first, some and the last are told.
The line has no colour to switch off.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TextIO

from nfold.core.report import TimeParts
from nfold.core.text.units import clock as clock_text
from nfold.core.text.units import figure, percent

_REDRAW_S = 0.1
_PLAIN_S = 30.0
_FIRST, _SOME = 4, 8
"""Epochs that are told, however short: the first ones, and about so many of all."""
_CLEAR_LINE = "\r\x1b[K"


@dataclass(frozen=True, kw_only=True, slots=True)
class RunProgress:
    """How far a job is."""

    epoch: int
    """The first is 1."""
    num_epochs: int
    fraction: float
    """Of this epoch that is done, 0 to 1."""
    loss: float | None = None
    samples_per_s: float | None = None
    parts: TimeParts | None = None
    """Of a recent step."""
    eta_s: float | None = None
    """Until the whole run is done."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Of the epoch's evaluation, when it has just ended."""


class ProgressLine:
    """Writes the progress of one job, and messages that do not garble it.

    Args:
        stream: where to.
        is_terminal: whether `stream` is one; nothing is rewritten where it is not.
        clock: seconds, from any zero.
        width: columns of the terminal; a longer line is cut, because a wrapped one cannot be rewritten.
    """

    def __init__(self, stream: TextIO, *, is_terminal: bool, clock: Callable[[], float], width: int = 120) -> None:
        self._stream = stream
        self._is_terminal = is_terminal
        self._clock = clock
        self._width = width
        self._line = ""
        self._is_mid_line = False
        self._drawing = threading.Lock()
        self._written_s = float("-inf") if is_terminal else clock()
        self._told_s = clock()

    def update(self, progress: RunProgress) -> None:
        """Show where the job is, if it is time to, or an epoch that is to be told ends."""
        period_s = _REDRAW_S if self._is_terminal else _PLAIN_S
        with self._drawing:
            is_due = self._clock() - self._written_s >= period_s and not self._is_mid_line
            is_told = progress.fraction >= 1 and self._tells(progress)
            if not is_told and not is_due:
                return
            self._written_s = self._clock()
            if is_told:
                self._told_s = self._written_s
            self._write(progress_text(progress), stays=is_told and bool(progress.metrics))

    def _tells(self, progress: RunProgress) -> bool:
        """Whether the end of an epoch is told."""
        epoch, every = progress.epoch, -(-progress.num_epochs // _SOME)
        if epoch <= _FIRST or epoch == progress.num_epochs or epoch % every == 0:
            return True
        return self._clock() - self._told_s >= _PLAIN_S

    def note(self, text: str) -> None:
        """Print a message on lines of its own, above the progress line."""
        with self._drawing:
            self._begin_line()
            self._put(f"{_CLEAR_LINE}{text}\n{self._line}" if self._line else f"{text}\n")

    @contextlib.contextmanager
    def aside(self, text: str) -> Iterator[None]:
        """Make way while somebody else writes a text to the same terminal; the next progress draws the line again."""
        with self._drawing:
            if self._line:
                self._put(_CLEAR_LINE)
            self._line = ""
            yield
            self._is_mid_line = not text.endswith("\n")

    def close(self) -> None:
        """Leave the last line standing; more progress begins a new one."""
        with self._drawing:
            if self._line:
                self._put("\n")
            self._line = ""

    def _begin_line(self) -> None:
        """Leave standing what somebody else has begun to write."""
        if self._is_mid_line:
            self._put("\n")
        self._is_mid_line = False

    def _write(self, text: str, *, stays: bool) -> None:
        self._begin_line()
        if self._is_terminal and stays:
            self._line = ""
            self._put(f"{_CLEAR_LINE}{text}\n")
        elif self._is_terminal:
            self._line = text[: self._width - 1]
            self._put(f"{_CLEAR_LINE}{self._line}")
        else:
            self._put(f"{text}\n")

    def _put(self, text: str) -> None:
        """Write at once, if that can be: a reader that went away, or a full disk, must not end a training."""
        with contextlib.suppress(OSError):
            self._stream.write(text)
            self._stream.flush()


class BesideLine:
    """A stream to the terminal on which a progress line is drawn: what is printed there stands above the line.

    As to any terminal, text goes out at the end of a line, or when it is flushed; lines of several threads do not mix.
    """

    def __init__(self, stream: TextIO, line: ProgressLine) -> None:
        self._stream, self._line = stream, line
        self._begun: dict[int, str] = {}
        """By thread."""

    def write(self, text: str) -> int:
        """Take a text and return its length; whole lines go out, the rest waits for its end or for `flush`."""
        thread = threading.get_ident()
        begun = self._begun.pop(thread, "") + text
        end = max(begun.rfind("\n"), begun.rfind("\r")) + 1
        if end < len(begun):
            self._begun[thread] = begun[end:]
        self._put(begun[:end])
        return len(text)

    def flush(self) -> None:
        """Let out what this thread has begun to write."""
        self._put(self._begun.pop(threading.get_ident(), ""))

    def close(self) -> None:
        """Let out what any thread has begun to write; the terminal stays open."""
        while self._begun:
            self._put(self._begun.popitem()[1])

    def _put(self, text: str) -> None:
        if text:
            with self._line.aside(text):
                self._stream.write(text)
                self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def progress_text(progress: RunProgress) -> str:
    """Return the line; what is not known yet is left out."""
    pieces = [
        f"epoch {progress.epoch}/{progress.num_epochs} {percent(progress.fraction)}",
        "" if progress.loss is None else f"loss {loss_text(progress.loss)}",
        " ".join(f"{name} {figure(value)}" for name, value in progress.metrics.items()),
        "" if progress.samples_per_s is None else f"{progress.samples_per_s:.0f} samples/s",
        "" if progress.parts is None else _parts_text(progress.parts),
        "" if progress.eta_s is None else f"ETA {clock_text(progress.eta_s)}",
    ]
    return "  ".join(piece for piece in pieces if piece)


def loss_text(loss: float) -> str:
    """Two digits after the point, unless these would be a row of digits, or say too little of a small loss."""
    return f"{loss:.2f}" if 0.1 <= abs(loss) < 1e6 or loss == 0 else f"{loss:.3g}"


def _parts_text(parts: TimeParts) -> str:
    """Four shares; the update counts as compute here, and what fits no part makes the sum less than 100 %."""
    shown = {
        "compute": parts.compute_s + parts.update_s,
        "network": parts.exposed_communication_s,
        "wait": parts.peer_wait_s,
        "input": parts.input_s,
    }
    step_s = sum(shown.values()) + max(0.0, parts.other_s)
    return " ".join(f"{name} {percent(seconds / step_s if step_s > 0 else 0.0)}" for name, seconds in shown.items())
