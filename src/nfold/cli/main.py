"""The command line: parse, call one verb, print. Everything heavy is imported by the command that needs it."""

import argparse
import sys
from collections.abc import Sequence

from nfold.cli import compare, demo, plan, report, train, why
from nfold.errors import NfoldError
from nfold.version import __version__

COMMANDS = (demo, train, compare, plan, why, report)

EXIT_OK, EXIT_ERROR, EXIT_INTERRUPTED = 0, 2, 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0 done, 2 an error that nfold explains, 130 stopped with Ctrl-C."""
    parsed = build_parser().parse_args(arguments)
    try:
        parsed.run(parsed)
    except NfoldError as error:
        print("\n".join((f"nfold: {error}", *getattr(error, "__notes__", ()))), file=sys.stderr)
        return EXIT_ERROR
    except KeyboardInterrupt as stop:
        print(f"nfold: stopped. {stop}".rstrip(), file=sys.stderr)
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        sys.stderr.close()  # the reader of our output has seen enough
    return EXIT_OK


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    parser = argparse.ArgumentParser(
        prog="nfold",
        description="Spread a PyTorch program for one device over workers, and see where every second went.",
    )
    parser.add_argument("--version", action="version", version=f"nfold {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in COMMANDS:
        command.add_parser(commands)
    return parser


if __name__ == "__main__":
    sys.exit(main())
