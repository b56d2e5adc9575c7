"""The list of the user's runs: a file of SQLite in the user's state folder, one row per run.

A home may lie on a network, where SQLite's write-ahead log cannot be used, so it keeps its rollback journal
(sqlite.org/wal.html). The file is opened for each call: it may be removed at any time, and nobody holds it.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nfold.core.run_state import ListedRun
from nfold.errors import RunError
from nfold.machine.user_folders import state_folder

if TYPE_CHECKING:
    import sqlite3  # it is loaded by who opens a file: some builds of Python have none

FILE = "runs.sqlite3"
BEAT_S = 30.0
"""A run is written down at least so often while it goes on: so other hosts can tell that it does."""
VERSION = 1
MOST_RUNS = 2000
"""The oldest ones go when another begins."""
_MAKE = """
CREATE TABLE runs (
  number INTEGER PRIMARY KEY AUTOINCREMENT, folder TEXT, script TEXT, host TEXT, pid INTEGER, started TEXT,
  begun REAL, heard REAL, ended REAL, ending TEXT, cause TEXT, strategy TEXT, workers INTEGER, servers INTEGER,
  nodes INTEGER, step INTEGER, total_steps INTEGER, loss REAL)
"""
_COLUMNS = tuple(field.name for field in fields(ListedRun))
_CHANGING = tuple(name for name in _COLUMNS if name != "number")


def user_database() -> "RunDatabase | None":
    """Return the list of this user's runs; None: there is no home to keep it in."""
    folder = state_folder()
    return None if folder is None else RunDatabase(folder / FILE)


class RunDatabase:
    """The table of all runs of one user. Any process may use it at any time."""

    def __init__(self, path: Path, *, wait_s: float = 2.0) -> None:
        """Args:
        path: of the file, which is made with the first run.
        wait_s: how long to wait for another process that is writing.
        """
        self.path, self._wait_s = path, wait_s

    def begin(self, run: ListedRun, *, goes_on: bool) -> ListedRun:
        """List a run, and return it with its number.

        A run that goes on keeps the number that its folder had on this host; else what was listed of that folder is
        forgotten, since it holds another run now.

        Raises:
            RunError: the file cannot be written.
        """
        self._make_folder()
        with self._writing() as database:
            where = "folder = ? AND host = ?", (run.folder, run.host)
            found = database.execute(f"SELECT max(number) FROM runs WHERE {where[0]}", where[1]).fetchone()[0]
            if found is not None and goes_on:
                listed = replace(run, number=found)
                _write(database, listed)
                return listed
            database.execute(f"DELETE FROM runs WHERE {where[0]}", where[1])
            marks = ", ".join("?" * len(_CHANGING))
            made = database.execute(f"INSERT INTO runs ({', '.join(_CHANGING)}) VALUES ({marks})", _values(run))
            database.execute("DELETE FROM runs WHERE number <= ? - ?", (made.lastrowid, MOST_RUNS))
            return replace(run, number=made.lastrowid or 0)

    def update(self, run: ListedRun) -> None:
        """Write down how far a run is, unless another process has gone on with it.

        Raises:
            RunError: the file cannot be written.
        """
        with self._writing() as database:
            found = database.execute("SELECT pid, started FROM runs WHERE number = ?", (run.number,)).fetchone()
            if found == (run.pid, run.started):
                _write(database, run)

    def forget(self, run: ListedRun) -> None:
        """List a run no more.

        Raises:
            RunError: the file cannot be written.
        """
        with self._writing() as database:
            database.execute("DELETE FROM runs WHERE number = ?", (run.number,))

    def runs(self, number: int | None = None) -> list[ListedRun]:
        """Return all runs as their commands wrote them down, the newest first.

        Args:
            number: of the only one that is wanted; None: all are.

        Raises:
            RunError: the file cannot be read.
        """
        if not self.path.exists():
            return []
        with self._opened("rw") as database:
            if not _version(database):
                return []  # its maker has only begun
            query = (
                f"SELECT {', '.join(_COLUMNS)} FROM runs WHERE number = ? OR ? IS NULL ORDER BY begun DESC, number DESC"
            )
            rows = database.execute(query, (number, number)).fetchall()
        return [ListedRun(**dict(zip(_COLUMNS, row, strict=True))) for row in rows]

    def _make_folder(self) -> None:
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise RunError(f"cannot make the folder {self.path.parent}: {error.strerror}") from error

    @contextlib.contextmanager
    def _writing(self) -> Iterator["sqlite3.Connection"]:
        with self._opened("rwc") as database:
            database.execute("BEGIN IMMEDIATE")
            if not _version(database):
                database.execute(_MAKE)
                database.execute(f"PRAGMA user_version = {VERSION}")
            yield database
            database.execute("COMMIT")

    @contextlib.contextmanager
    def _opened(self, mode: str) -> Iterator["sqlite3.Connection"]:
        try:
            import sqlite3
        except ImportError as error:
            raise RunError("the list of runs needs sqlite3, and this Python was built without it") from error
        place = f"{self.path.absolute().as_uri()}?mode={mode}"
        try:
            opened = sqlite3.connect(place, uri=True, timeout=self._wait_s, isolation_level=None)
            with contextlib.closing(opened) as database:
                _check_version(self.path, _version(database))
                yield database
        except sqlite3.Error as error:
            raise RunError(
                f"the list of runs {self.path} cannot be used: {error}. Runs and their folders are unharmed. If it is "
                "damaged, move it away: a new one is begun."
            ) from error


def _version(database: "sqlite3.Connection") -> int:
    """Return the version of the table; 0: it is not made."""
    return int(database.execute("PRAGMA user_version").fetchone()[0])


def _check_version(path: Path, version: int) -> None:
    if version > VERSION:
        raise RunError(
            f"the list of runs {path} is of version {version}, and this nfold reads version {VERSION}: a newer nfold "
            "has written it. Install that one (pip install --upgrade nfold)."
        )


def _write(database: "sqlite3.Connection", run: ListedRun) -> None:
    changes = ", ".join(f"{name} = ?" for name in _CHANGING)
    database.execute(f"UPDATE runs SET {changes} WHERE number = ?", (*_values(run), run.number))


def _values(run: ListedRun) -> tuple[Any, ...]:
    return tuple(getattr(run, name) for name in _CHANGING)
