"""Reads the job's token from where only its owner can."""

import os
import stat
import sys
from pathlib import Path

from nfold.errors import ClusterError
from nfold.transport.connecting.job_token import key_and_certificate

STANDARD_INPUT = "-"


def read_token(path: str) -> str:
    """Return the token in a file, or the first line of standard input for "-".

    Raises:
        ClusterError: there is none, it is garbled, or others may read it too.
    """
    if path == STANDARD_INPUT:
        token = sys.stdin.readline().strip()
        if not token:
            raise ClusterError("no token came on standard input: --token-file - takes its first line")
        return _checked(token, "standard input")
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            mode = os.fstat(file.fileno()).st_mode
            token = file.readline().strip()
    except OSError as error:
        raise ClusterError(
            f"cannot read the token file {path}: {error.strerror}. Copy it from the machine that printed its path."
        ) from error
    if why := refuse_shared(mode):
        raise ClusterError(f"the token file {path} {why}. Type: chmod 600 {path}")
    if not token:
        raise ClusterError(f"the token file {path} is empty. Copy it anew from the machine that printed its path.")
    return _checked(token, f"the token file {path}")


def write_token(path: Path, token: str) -> None:
    """Write a token where only its owner can read it.

    Raises:
        OSError: it cannot be written.
    """
    write_owned(path, f"{token}\n")


def write_owned(path: Path, text: str) -> None:
    """Write a file that only its owner can read.

    Raises:
        OSError: it cannot be written.
    """
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "w", encoding="utf-8") as file:
        file.write(text)


def refuse_shared(mode: int) -> str:
    """Say why a file that holds a token is not believed; empty: its owner alone can read and change it."""
    if not mode & (stat.S_IRWXG | stat.S_IRWXO):
        return ""
    return (
        f"can be read or changed by others (mode {stat.S_IMODE(mode):o}), and who knows the token can take part in "
        "the job"
    )


def _checked(token: str, where: str) -> str:
    if not (token.isascii() and token.isprintable()):
        raise ClusterError(f"{where} holds something else than a job's token, which is one line of plain text")
    key_and_certificate(token)
    return token
