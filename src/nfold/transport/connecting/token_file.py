"""Reads the job's token from where only its owner can, and removes what killed commands have left there."""

import contextlib
import os
import re
import stat
import sys
import tempfile
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


def token_file() -> Path:
    """Return where the token of this process's job is written for people who join by hand."""
    return _tokens_folder() / f"nfold-{os.getuid()}-{os.getpid()}.token"


def drop_left_tokens(token: str) -> None:
    """Remove what processes that were killed have left of a token that nobody needs any more.

    Of this user alone, and nothing of a process that lives.
    """
    own = re.compile(rf"nfold-{os.getuid()}-([1-9]\d*)\.token")
    with contextlib.suppress(OSError):
        for path in list(_tokens_folder().iterdir()):
            named = own.fullmatch(path.name)
            if named and not _lives(int(named[1])) and _holds(path, token):
                path.unlink(missing_ok=True)


def _tokens_folder() -> Path:
    return Path(os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir())


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


def _holds(path: Path, token: str) -> bool:
    """Whether it is a file of this user with that token; a link is not."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), encoding="utf-8") as file:
            status = os.fstat(file.fileno())
            is_own = stat.S_ISREG(status.st_mode) and status.st_uid == os.getuid()
            return is_own and file.read() == f"{token}\n"
    except (OSError, ValueError):  # somebody else's, or no text
        return False


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
