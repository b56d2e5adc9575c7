"""The command line: parse, call one verb, print. Everything heavy is imported by the command that needs it.

Even what is light is imported inside `main`, so that Ctrl-C finds somebody to hear it from the first moment on.
"""

import errno
import os
import sys

TYPE_CHECKING = False  # typing itself would take as long to import as all else here
if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence
    from typing import TextIO

EXIT_OK, EXIT_UNREAD, EXIT_ERROR, EXIT_INTERRUPTED = 0, 1, 2, 130


def main(arguments: "Sequence[str] | None" = None) -> int:
    """Run one command and return its exit code.

    0: done; 1: what it printed found no reader, as when Python itself ends so; 2: an error that nfold explains;
    130: stopped with Ctrl-C. `nfold emulate` ends with the exit code of what it ran.
    """
    _open_closed_streams()
    try:
        code = _run(arguments)
        sys.stdout.flush()
    except KeyboardInterrupt as stop:
        _say(f"nfold: stopped. {stop}".rstrip())
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        return EXIT_UNREAD  # without a word: the reader of our output has seen enough
    except OSError as error:
        if error.errno != errno.ENOSPC or error.filename:
            raise
        _say(f"nfold: cannot write its output: {error.strerror}. Free some, or send it elsewhere.")
        return EXIT_ERROR
    finally:
        for stream in (sys.stdout, sys.stderr):
            _let_go(stream)
    return code


def _run(arguments: "Sequence[str] | None") -> int:
    from nfold.errors import NfoldError

    try:
        _check_working_directory()
        parsed = _parse(arguments)
        parsed.is_process = arguments is None
        return parsed.run(parsed) or EXIT_OK
    except NfoldError as error:
        _say("\n".join((f"nfold: {error}", *getattr(error, "__notes__", ()))))
        return EXIT_ERROR
    except SystemExit:  # argparse has answered, to --help or --version too
        sys.stdout.flush()
        raise


def _check_working_directory() -> None:
    """Refuse to work where nothing can be written, and no script be found.

    Raises:
        PlanError: the directory was removed.
    """
    from nfold.errors import PlanError

    try:
        os.getcwd()
    except FileNotFoundError:
        raise PlanError("the working directory does not exist any more. Change to one that does.") from None


def _say(text: str) -> None:
    """Write to stderr, if that can be: the exit code says it too."""
    import contextlib

    with contextlib.suppress(OSError):
        print(text, file=sys.stderr, flush=True)


def _let_go(stream: "TextIO") -> None:
    """Drop what a stream cannot write: Python would try again at its end, and make the exit code 120."""
    import contextlib

    try:
        stream.flush()
    except OSError:
        with contextlib.suppress(OSError):
            stream.close()


def _parse(arguments: "Sequence[str] | None") -> "argparse.Namespace":
    """Read the command line; what argparse itself refuses ends the process with its own message, and code 2.

    Raises:
        PlanError: there is no command, or something that no command understands.
    """
    from nfold.errors import PlanError

    parsed, unknown = build_parser().parse_known_args(arguments)
    if parsed.command is None:
        what = f"there is no flag {unknown[0]}" if unknown else "no command was given"
        raise PlanError(f"{what}. The commands are {', '.join(parsed.commands)}; see: nfold --help")
    if unknown:
        what = f"there is no flag {unknown[0]}" if unknown[0].startswith("-") else f"{unknown[0]!r} says nothing here"
        raise PlanError(f"{what}. See what {parsed.command} understands: nfold {parsed.command} --help")
    return parsed


def _open_closed_streams() -> None:
    """Give a command that was started without standard streams (`>&-`) some that lead nowhere.

    Else what it opens first would take their numbers, and its ranks would print into that.
    """
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            number = os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(number, True)
            setattr(sys, name, os.fdopen(number, "r" if name == "stdin" else "w"))


def build_parser() -> "argparse.ArgumentParser":
    """Return the parser of all commands."""
    import argparse

    from nfold.cli import (
        advise_command,
        agent_command,
        compare_command,
        demo_command,
        doctor_command,
        emulate_command,
        place_command,
        plan_command,
        resume_command,
        train_command,
    )
    from nfold.cli.watching import (
        logs_command,
        ps_command,
        report_command,
        scale_command,
        stop_command,
        top_command,
        why_command,
    )
    from nfold.version import __version__

    parser = argparse.ArgumentParser(
        prog="nfold",
        description="Spread a PyTorch program for one device over workers, and see where every second went.",
    )
    parser.add_argument("--version", action="version", version=f"nfold {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", dest="command")
    for command in (
        demo_command,
        train_command,
        resume_command,
        compare_command,
        plan_command,
        why_command,
        report_command,
        ps_command,
        top_command,
        logs_command,
        scale_command,
        stop_command,
        emulate_command,
        advise_command,
        place_command,
        doctor_command,
        agent_command,
    ):
        command.add_parser(commands)
    parser.set_defaults(commands=tuple(commands.choices))
    return parser


if __name__ == "__main__":
    sys.exit(main())
