"""Flags that several commands share, and what they mean to the verbs."""

import argparse
import contextlib
import sys
from collections.abc import Iterator
from typing import Any

from nfold.errors import PlanError

_SAME_NAME = (
    *("strategy", "servers", "steps", "chunks", "loaders", "seed", "out", "device", "port"),
    *("emulate", "fault", "staleness", "first_step_within", "keep"),
)


def add_program(parser: argparse.ArgumentParser, *, optional: bool = False) -> None:
    """Add the positional script."""
    parser.add_argument(
        "program",
        metavar="FILE.py[:function]",
        nargs="?" if optional else None,
        help="script with a function that returns nfold.Program (`program` unless named)",
    )


def add_run_flags(parser: argparse.ArgumentParser) -> None:
    """Add what every command that starts ranks understands; absent flags are left to Options."""
    parser.add_argument("--servers", type=int, metavar="K", help="dedicated server ranks beside the workers, at most N")
    parser.add_argument(
        "--staleness",
        type=int,
        metavar="S",
        help="with ssp: slices of a batch that a worker may be ahead of the slowest",
    )
    parser.add_argument(
        "--staleness-aware", action="store_true", help="with ps-async and ssp: slower learning from older gradients"
    )
    parser.add_argument("--steps", type=int, metavar="K", help="optimizer steps in all, instead of the epochs")
    parser.add_argument("--chunks", type=int, metavar="C", help="equal cuts of a batch")
    parser.add_argument(
        "--loaders",
        type=int,
        metavar="K",
        help="processes beside each rank that read samples ahead; they change no result",
    )
    parser.add_argument("--seed", type=int, metavar="S", help="instead of the program's")
    parser.add_argument("--out", metavar="RUN", help="folder of the run; a new one under runs/ unless given")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), help="where to compute")
    parser.add_argument(
        "--port", type=int, metavar="P", help="where the coordinator listens; any free port unless given"
    )
    parser.add_argument(
        "--debug",
        action="store_true",
        help="ranks are threads of this process, so that a debugger works; the program prints to the terminal "
        "instead of log.txt",
    )
    parser.add_argument(
        "--no-measure", action="store_true", help="do not time each reduction nor sample the system (costs under 2 %%)"
    )
    parser.add_argument(
        "--measure-again",
        action="store_true",
        help="measure the program although an earlier run did so and nothing has changed",
    )
    parser.add_argument(
        "--first-step-within",
        type=float,
        metavar="SECONDS",
        help="refuse a plan whose step is predicted to take longer; 300 unless given",
    )
    parser.add_argument(
        "--emulate", metavar="FILE.toml", help="emulate this cluster here (Linux, root); a worker per node unless -n"
    )
    add_fault(parser)


def add_course_flags(parser: argparse.ArgumentParser) -> None:
    """Add what says when a run writes checkpoints, what it keeps and when it stops, which a plan checks."""
    parser.add_argument(
        "--checkpoint-every", type=int, metavar="K", help="steps between checkpoints; an epoch unless given; 0: none"
    )
    parser.add_argument(
        "--keep",
        metavar="best:METRIC",
        help="keep the model of the best evaluation too, as in best:accuracy or best:test_loss:min",
    )
    parser.add_argument(
        "--stop-after",
        metavar="TIME",
        help="write a checkpoint and end with exit code 75 so long after the start: 90 (seconds), 30m, 3h, 1d",
    )


def add_fault(parser: argparse.ArgumentParser) -> None:
    """Add --fault."""
    parser.add_argument(
        "--fault",
        action="append",
        metavar="'VERB NODE ..@TIME'",
        help="let something go wrong in the emulated cluster: 'kill n2@30s', 'slow n1 0.25@10s', "
        "'uplink n3 10Mbit@20s', 'partition n2@15s for 5s'; may be repeated",
    )


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add --json."""
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout, all else on stderr")


def wishes(parsed: argparse.Namespace) -> dict[str, Any]:
    """Return the flags that were given, by the names of Options."""
    given = {name: getattr(parsed, name) for name in _SAME_NAME if getattr(parsed, name, None) is not None}
    if getattr(parsed, "debug", False):
        given["debug"] = True
    if getattr(parsed, "staleness_aware", False):
        given["staleness_aware"] = True
    if getattr(parsed, "measure_again", False):
        given["measure_again"] = True
    if getattr(parsed, "no_measure", False):
        given["measure"] = False
    if getattr(parsed, "workers", None) is not None:
        given["workers"] = parsed.workers
    if getattr(parsed, "stop_after", None) is not None:
        given["stop_after"] = parsed.stop_after
    if getattr(parsed, "checkpoint_every", None) is not None:
        given["checkpoint_every"] = parsed.checkpoint_every
    return given


def flag_of(wish: str) -> str:
    """Return the flag of a wish that is no default."""
    return "--no-measure" if wish == "measure" else f"--{wish.replace('_', '-')}"


@contextlib.contextmanager
def only_result_on_stdout(parsed: argparse.Namespace) -> Iterator[None]:
    """With --json, send what the user's program prints (with --debug it runs in this process) to stderr."""
    with contextlib.redirect_stdout(sys.stderr) if parsed.json else contextlib.nullcontext():
        yield


def numbers(text: str) -> list[int]:
    """Read `1,2,4`.

    Raises:
        PlanError: it is something else.
    """
    try:
        return [int(part) for part in text.split(",")]
    except ValueError as error:
        raise PlanError(f"-n {text}: expected whole numbers with commas between, as in -n 1,2,4") from error


def names(text: str) -> list[str]:
    """Read `ring,ps`."""
    return [part.strip() for part in text.split(",") if part.strip()]
