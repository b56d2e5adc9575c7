"""nfold top"""

import argparse
import os
import select
import shlex
import shutil
import sys
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from nfold.cli.flags import add_json, add_option, add_run
from nfold.errors import PlanError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from nfold.core.run_state import ListedRun
    from nfold.verbs.jobs.run_list import FoundRun
    from nfold.view import Look

_REFRESH_S = 1.0
_LINES_OF_THE_REST, _FEWEST_RANKS = 26, 4
"""Lines of a screen that ranks cannot have, and ranks that are shown on the smallest one."""


def add_parser(commands: Any) -> None:
    """Add the command."""
    description = (
        "Show a run while it goes on: how far it is, what its time goes to, every rank, what changed. Refreshed each "
        "second; q or Ctrl-C ends. Where there is no terminal, it is shown once."
    )
    parser = commands.add_parser("top", help="watch a run", description=description)
    add_run(parser, unless_given="the newest of those that go on")
    add_option(parser, "dashboard")
    add_json(parser)
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> None:
    """Show it once, or until somebody ends this or it ends."""
    from nfold.cli.terminal import look
    from nfold.core import codec
    from nfold.verbs.jobs.run_list import find_run

    found, seen = find_run(parsed.named, prefers_running=True), look(sys.stdout)
    if "dashboard" in parsed:
        _show_page(found, parsed.dashboard, as_json=parsed.json)
    elif parsed.json:
        print(codec.dumps(found.state(), indent=1))
        return
    elif found.listed is not None and found.is_running and seen.is_terminal and sys.stdin.isatty():
        with suppress(KeyboardInterrupt):
            _watch(found, found.listed, seen)
    if found.listed is not None:
        found = find_run(str(found.listed.number))  # as it is now
    print(_text(found, seen), end="")


def _show_page(found: "FoundRun", port: int, *, as_json: bool) -> None:
    """Show a run in a browser until it ends, or Ctrl-C."""
    from nfold.verbs.jobs.run_process import RunProcess
    from nfold.verbs.options.addresses import read_address
    from nfold.verbs.watching.dashboard import DashboardServer

    if as_json:
        raise PlanError("--dashboard shows a run until it ends, and --json once. Leave one of them out.")
    if found.listed is None or not found.is_running:
        raise PlanError(
            f"--dashboard shows a run while it goes on, and that in {found.folder} does not. Its page is written at "
            f"its end: nfold report {shlex.quote(str(found.folder))}"
        )
    read_address(port, "--dashboard")
    found.check_here()
    page = DashboardServer(found.folder, found.state).opened(port, lambda line: print(line, flush=True))
    with suppress(KeyboardInterrupt), page, RunProcess(found.listed) as process:
        while not process.has_ended(_REFRESH_S):
            pass


def _watch(found: "FoundRun", listed: "ListedRun", seen: "Look") -> None:
    """Show a run until it ends or q is pressed."""
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    from nfold.verbs.jobs.run_process import RunProcess

    most_ranks = max(_FEWEST_RANKS, shutil.get_terminal_size().lines - _LINES_OF_THE_REST)
    console = Console(no_color=not seen.color, highlight=False)
    screen = Live(console=console, screen=True, auto_refresh=False)
    with RunProcess(listed) as process, _keyboard() as pressed_q, screen:
        while not process.has_ended(0.0):
            screen.update(Text.from_ansi(_text(found, seen, most_ranks)), refresh=True)
            if pressed_q(_REFRESH_S):
                return


def _text(found: "FoundRun", seen: "Look", most_ranks: int | None = None) -> str:
    from nfold.view import top_text

    return top_text(
        found.state(), found.listed, folder=str(found.folder), now=time.time(), most_ranks=most_ranks, look=seen
    )


@contextmanager
def _keyboard() -> "Iterator[Callable[[float], bool]]":
    """Yield a function that waits so many seconds for a key and says whether it was q; keys come without Return."""
    import termios
    import tty

    keyboard = sys.stdin.fileno()
    before = termios.tcgetattr(keyboard)

    def pressed_q(within_s: float) -> bool:
        ready, _, _ = select.select([keyboard], [], [], within_s)
        return bool(ready) and os.read(keyboard, 64) in (b"q", b"Q", b"")  # b"": the terminal is gone

    try:
        tty.setcbreak(keyboard)
        yield pressed_q
    finally:
        termios.tcsetattr(keyboard, termios.TCSADRAIN, before)
