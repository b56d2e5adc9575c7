"""Flags that several commands share, and what they mean to the verbs."""

import argparse
import contextlib
import sys
from collections.abc import Collection, Iterator
from typing import Any

from nfold.core.options.run_options import OPTIONS, flags_of, kind_of
from nfold.errors import PlanError


def add_program(parser: argparse.ArgumentParser, *, optional: bool = False) -> None:
    """Add the script, FILE.py[:function], as the positional `program`; one that is optional and absent is None."""
    parser.add_argument(
        "program",
        metavar="FILE.py[:function]",
        nargs="?" if optional else None,
        help="script with a function that returns nfold.Program (`program` unless named)",
    )


def add_options(parser: argparse.ArgumentParser, *, without: Collection[str] = ()) -> None:
    """Add the flags of all fields of RunOptions but some; what is not given is not in the result."""
    for name in OPTIONS:
        if name not in without and flags_of(name):
            add_option(parser, name)


def add_option(parser: argparse.ArgumentParser, name: str) -> None:
    """Add the flags of one field of RunOptions, which says their names, type, choices and help."""
    what, kind = OPTIONS[name].metadata, kind_of(name)
    understood: dict[str, Any] = {"dest": name, "default": argparse.SUPPRESS, "help": what["told"]}
    if what["bare"] is not None:
        understood |= {"metavar": what["metavar"], "nargs": "?", "const": what["bare"], "action": _TakeNumber}
    elif kind is bool:
        understood["action"] = "store_false" if OPTIONS[name].default else "store_true"
    else:
        understood |= {"metavar": what["metavar"], "choices": what["choices"]}
        understood |= {"action": "append"} if kind is tuple else {"type": kind}
    parser.add_argument(*flags_of(name), **understood)


class _TakeNumber(argparse.Action):
    """Takes what stands behind a flag; it may also be what was meant to stand without one."""

    def __call__(
        self, parser: Any, namespace: argparse.Namespace, values: Any, option_string: str | None = None
    ) -> None:
        """Keep the number.

        Raises:
            PlanError: it is none. As a `type`, argparse would tell how the whole command is used.
        """
        try:
            setattr(namespace, self.dest, int(values))
        except ValueError:
            raise PlanError(
                f"{option_string} {values}: this is no number. FILE.py or RUN stands before {option_string}."
            ) from None


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add --json, which every command that prints a result has."""
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout, all else on stderr")


def add_run(parser: argparse.ArgumentParser, *, unless_given: str = "the newest") -> None:
    """Add the positional run."""
    parser.add_argument(
        "named", metavar="RUN", nargs="?", help=f"number of a run in `nfold ps`, or its folder; {unless_given}"
    )


def wishes(parsed: argparse.Namespace) -> dict[str, Any]:
    """Return the fields of RunOptions that were given, by name."""
    return {name: value for name, value in vars(parsed).items() if name in OPTIONS}


@contextlib.contextmanager
def only_result_on_stdout(parsed: argparse.Namespace) -> Iterator[None]:
    """With --json, send what the user's program prints (with --debug it runs in this process) to stderr."""
    with contextlib.redirect_stdout(sys.stderr) if parsed.json else contextlib.nullcontext():
        yield


def numbers(text: str) -> list[int]:
    """Read `1,2,4` of -n or --servers.

    Raises:
        PlanError: it is something else.
    """
    try:
        return [int(part) for part in text.split(",")]
    except ValueError as error:
        raise PlanError(f"-n {text}: expected whole numbers with commas between, as in -n 1,2,4") from error


def names(text: str) -> list[str]:
    """Read `ring,ps`; what is empty between commas is left out."""
    return [part.strip() for part in text.split(",") if part.strip()]
