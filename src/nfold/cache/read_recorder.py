"""Sees which files and environment variables a program reads while it is loaded: what it is hangs on them."""

import contextlib
import hashlib
import importlib.util
import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import ModuleType
from typing import Any

from nfold.program import is_library

_SMALL_BYTES = 1 << 16
"""Files of the user's are compared byte by byte up to this size, larger ones by size and time of change."""
_NO_FILES = ("/proc/", "/sys/", "/dev/")
_State = tuple[int, int] | None
"""Bytes and time of change of a file; None: there is none."""
_OF_LIBRARIES = (
    *(
        "ATEN_",
        "BLIS_",
        "CUBLAS_",
        "CUDA_",
        "DNNL_",
        "GLIBC_",
        "GOMP_",
        "KMP_",
        "LD_",
        "MALLOC_",
        "MKL_",
        "NPY_",
        "NVIDIA_",
    ),
    *("OMP_", "ONEDNN_", "OPENBLAS_", "PYTHONHASHSEED", "PYTORCH_", "TORCH_"),
)
"""What libraries read that are not written in Python begins with these."""

_OF_TERMINALS = frozenset({"_", "COLUMNS", "LINES", "OLDPWD", "PWD", "SHLVL", "STY", "TERM", "TMUX_PANE", "WINDOWID"})
"""What differs between two runs of one command. The working folder is looked at by itself."""


class ReadRecorder:
    """Notes what is read through Python while it watches; what compiled libraries open by themselves it does not see.

    For a process that is ours alone: the hook stays for good, and os.environ is another class meanwhile.
    """

    def __init__(self) -> None:
        self._files: dict[str, _State] = {}
        self._variables: dict[str, str | None] = {}
        self._is_watching = self._saw_all = False
        sys.addaudithook(self._hear)

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Watch for as long as the context lasts; what several see is joined."""
        with _noted_reads(self._variables.setdefault, self._see_all):
            self._is_watching = True
            try:
                yield
            finally:
                self._is_watching = False

    def files(self, modules: Iterable[ModuleType] | None = None) -> dict[str, str] | None:
        """Return the content of each file that was read, and of those from which modules came. 5 us each or so.

        Args:
            modules: that are loaded; those of this process if not given.

        Returns:
            texts that differ when files do. None: a file has changed since it was read, so nobody knows what was.
        """
        if any(_state(name) != state for name, state in self._files.items()):
            return None
        loaded = list(sys.modules.values()) if modules is None else modules
        found = {name for each in loaded if isinstance(name := _file_of(each), str) and name}
        names = {name if os.path.isabs(name) else os.path.abspath(name) for name in found}
        return {name: content_of(name) for name in sorted(names | self._files.keys())}

    def variables(self, environment: Mapping[str, str] = os.environ) -> dict[str, str | None]:
        """Return what was there of each variable that was asked for, and all that steer numeric libraries.

        Args:
            environment: of which all counts if somebody looked through all, but for what tells terminals apart.
        """
        more = {
            name: value
            for name, value in environment.items()
            if name.startswith(_OF_LIBRARIES) or (self._saw_all and name not in _OF_TERMINALS)
        }
        return more | self._variables

    @property
    def asked(self) -> dict[str, str | None]:
        """What was there of each variable that was asked for by its name."""
        return dict(self._variables)

    def _see_all(self) -> None:
        self._saw_all = True

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self._is_watching or event != "open":
            return
        path, _, flags = arguments
        if not isinstance(path, str | bytes | os.PathLike) or (flags or 0) & (os.O_WRONLY | os.O_RDWR):
            return
        name = _source_of(os.path.abspath(os.fsdecode(path)))
        if not name.startswith(_NO_FILES):
            self._files.setdefault(name, _state(name))


def content_of(name: str) -> str:
    """Return a text that differs when a file does: the user's small ones by their bytes, others by size and time."""
    try:
        found = os.stat(name)
        if stat.S_ISREG(found.st_mode) and found.st_size <= _SMALL_BYTES and not is_library(name):
            with open(name, "rb") as file:
                return hashlib.sha256(file.read()).hexdigest()
    except OSError:
        return "gone"
    return f"{found.st_size} bytes of {found.st_mtime_ns}"


def _state(name: str) -> _State:
    try:
        found = os.stat(name)
    except OSError:
        return None
    return found.st_size, found.st_mtime_ns


def _file_of(module: ModuleType) -> Any:
    """Return a module's file, without waking one that loads itself when it is asked for anything."""
    try:
        return object.__getattribute__(module, "__dict__").get("__file__")
    except AttributeError:
        return None


def _source_of(name: str) -> str:
    """Return a file of source for one of bytecode, which is written anew whenever."""
    try:
        return importlib.util.source_from_cache(name) if name.endswith(".pyc") else name
    except (ValueError, NotImplementedError):
        return name


@contextlib.contextmanager
def _noted_reads(note: Callable[[str, str | None], Any], note_all: Callable[[], None]) -> Iterator[None]:
    """Note each name that is asked of os.environ, and what is there; and that somebody looks through all of it."""
    kind: Any = os._Environ
    if type(os.environ) is not kind:
        note_all()  # it is somebody's own, and nobody knows how that is read
        yield
        return
    passed: set[Any] = set()
    """Names that a look through all has passed, whose values are asked for next."""

    class Noting(kind):  # type: ignore[misc]  # a class that nobody names in public
        def __getitem__(self, name: Any) -> Any:
            value = None
            try:
                value = super().__getitem__(name)
            finally:
                if name not in passed:
                    note(name, value)
                passed.discard(name)
            return value

        def __iter__(self) -> Iterator[Any]:
            note_all()
            for name in super().__iter__():
                passed.add(name)
                yield name

    environment: Any = os.environ
    environment.__class__ = Noting
    try:
        yield
    finally:
        environment.__class__ = kind
