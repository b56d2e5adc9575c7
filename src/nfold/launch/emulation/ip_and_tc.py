"""Performs batches of lines for `ip` and `tc`."""

import subprocess

from nfold.errors import ClusterError
from nfold.launch.emulation.namespaces import Batch

TIMEOUT_S = 30.0
_FORBIDDEN = ("Operation not permitted", "Permission denied")
_PRIVILEGES = "Emulating a cluster needs a root that may make network namespaces; in a container, use --privileged."


def perform(batch: Batch, *, timeout_s: float = TIMEOUT_S) -> None:
    """Have a tool carry out its lines, in their order, until one fails.

    Raises:
        ClusterError: it cannot be started, fails, or has not ended after `timeout_s`; the message has what it said.
    """
    text = "".join(f"{line}\n" for line in batch.lines)
    command = " ".join(batch.command)
    try:
        done = subprocess.run(
            batch.command,
            input=text,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=timeout_s,
            process_group=0,  # a Ctrl-C in the terminal is for us and must not break what is half built
        )
    except subprocess.TimeoutExpired:
        raise ClusterError(
            f"{command} has not ended within {timeout_s:g} s, at {_first(batch)}. The kernel or another program may "
            "hold its network devices: try again."
        ) from None
    except OSError as error:
        raise ClusterError(f"{command} cannot be started: {error.strerror}") from error
    if done.returncode != 0:
        raise ClusterError(f"{command} failed: {_said(done.stderr, batch)}")


def _said(stderr: str, batch: Batch) -> str:
    said = " ".join(stderr.split()) or f"it said nothing, at {_first(batch)}"
    said = said if said.endswith(".") else f"{said}."
    return f"{said} {_PRIVILEGES}" if any(each in said for each in _FORBIDDEN) else said


def _first(batch: Batch) -> str:
    more = f" and {len(batch.lines) - 1} more" if len(batch.lines) > 1 else ""
    return f"{batch.lines[0]!r}{more}" if batch.lines else "no line"
