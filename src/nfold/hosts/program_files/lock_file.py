"""What an environment is made of: a lock file, which travels with the program.

Two formats are read: pip's (`name==version` a line, with options for where packages are found, as `pip freeze` writes
it), and pylock.toml (packaging.python.org: PEP 751), which is turned into pip's. All must be pinned: else two hosts
could get different versions.
"""

import hashlib
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nfold.errors import ProgramError

_MOST_BYTES = 4 << 20
_ADDRESS = r"https?://\S+|git\+(https?|ssh)://\S+@[0-9a-f]{40}(\#\S*)?"
"""Of a package that every host finds, and finds the same."""
_PINNED = re.compile(
    rf"[A-Za-z0-9][\w.-]*(\[[^]]*\])?\s*(===?\s*[^\s;,*]+|@\s*({_ADDRESS}))\s*(;.*?)?(\s+--hash=\S+)*\s*"
)
_OPTIONS = (
    "--index-url",
    "-i",
    "--extra-index-url",
    "--find-links",
    "-f",
    "--no-index",
    "--only-binary",
    "--no-binary",
)
_OF_ELSEWHERE = ("vcs", "directory", "archive")
"""Where a package of pylock.toml comes from, if not from an index."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LockFile:
    """Packages with their versions."""

    name: str
    """Of the file, for messages."""
    text: str
    """In pip's format."""

    @property
    def digest(self) -> str:
        """Return the checksum of the text."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    @property
    def names_nfold(self) -> bool:
        """Whether nfold itself is among the packages."""
        return re.search(r"^nfold\s*[=@]", self.text, re.MULTILINE) is not None


def read_lock(path: Path) -> LockFile:
    """Read a lock file.

    Raises:
        ProgramError: it cannot be read, or something in it is not pinned.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ProgramError(f"--env {path}: {error.strerror}. Give a lock file, as pip freeze writes it.") from error
    if len(content) > _MOST_BYTES:
        raise ProgramError(f"--env {path}: it has {len(content)} bytes, and a lock file at most {_MOST_BYTES}")
    text = content.decode(errors="replace")
    if path.suffix == ".toml":
        return LockFile(name=path.name, text=_from_pylock(path, text))
    _check_pinned(path, text)
    return LockFile(name=path.name, text=text)


def _check_pinned(path: Path, text: str) -> None:
    joined = re.sub(r"\\\r?\n", " ", text)
    for line in joined.splitlines():
        wanted = re.sub(r"(^|\s)#.*", "", line).strip()
        if not wanted or re.split(r"[=\s]", wanted)[0] in _OPTIONS or _PINNED.fullmatch(wanted):
            continue
        raise ProgramError(
            f"--env {path}: {wanted!r} is not pinned, or names a file that does not travel. Each line must be as in "
            "torch==2.13.0; pip freeze --all --exclude-editable writes such a file."
        )


def _from_pylock(path: Path, text: str) -> str:
    try:
        packages = tomllib.loads(text)["packages"]
        lines = [_requirement(package) for package in packages]
        indexes = dict.fromkeys(package["index"] for package in packages if "index" in package)
    except (tomllib.TOMLDecodeError, KeyError, TypeError, ValueError) as error:
        raise ProgramError(f"--env {path}: it is no pylock.toml that pins all packages of an index: {error}") from error
    return "\n".join([*(f"--extra-index-url {index}" for index in indexes), *lines, ""])


def _requirement(package: dict[str, Any]) -> str:
    name = package["name"]
    if any(each in package for each in _OF_ELSEWHERE):
        raise ValueError(f"{name} comes from no index")
    files = [*package.get("wheels", ()), *([package["sdist"]] if "sdist" in package else [])]
    hashes = "".join(f" --hash=sha256:{file['hashes']['sha256']}" for file in files)
    marker = f" ; {package['marker']}" if "marker" in package else ""
    return f"{name}=={package['version']}{marker}{hashes}"
