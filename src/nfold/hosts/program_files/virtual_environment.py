"""Makes virtual environments from lock files in a cache folder, each once on a host.

    environments/KEY.lock        held together by all who look for it, make it or use it; alone by who removes it
    environments/KEY.making      held by who makes it, alone, and only so long: by pip or uv, too, which may outlive us
    environments/KEY/made-x/     an environment; what was begun and not ended stays unnamed, and goes with the next one
    environments/KEY/current     names the one that is whole

The key is a checksum of lock file, kind of processor, Python and the place of nfold. Packages come from the lock file
alone: pip resolves nothing, and then checks that nothing is missing. nfold is the agent's own unless the lock file
names it: a link to its package, and to nothing that is installed beside it.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

from nfold.errors import ClusterError
from nfold.hosts.program_files.lock_file import LockFile
from nfold.version import __version__

_KEPT = 5
"""Environments; those that were used longest ago go first, but for those in use."""
_FACTS = """
import importlib.metadata as m, json, sysconfig
found = {each.metadata["Name"].lower() for each in m.distributions()}
from nfold.version import __version__
print(json.dumps({"nfold": __version__, "lacks": sorted({"torch", "numpy", "safetensors"} - found)}))
"""


class EnvironmentMaker:
    """Makes environments, or finds them made."""

    def __init__(self, folder: Path, interpreter: str = sys.executable) -> None:
        """Args:
        folder: is made where it is missing.
        interpreter: the Python that environments are made of.
        """
        self._folder, self._interpreter = folder, interpreter
        self._held = contextlib.ExitStack()
        self._process: subprocess.Popen[str] | None = None
        self._inherited: tuple[int, ...] = ()
        self._closing = threading.Lock()
        self._is_closed = False

    def python_of(self, lock: LockFile, making: Callable[[], None]) -> str:
        """Return the Python of an environment, which stays as long as this process.

        Args:
            lock: what it is made of.
            making: is called before one is made, which takes long.

        Raises:
            ClusterError: it cannot be made, or nfold cannot run in it.
        """
        key = self._key(lock)
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with contextlib.ExitStack() as letting_go:
                held = letting_go.enter_context(open(self._folder / f"{key}.lock", "wb"))
                fcntl.flock(held, fcntl.LOCK_SH)
                found = self._current(key) or self._find(lock, key, making)
                self._held = letting_go.pop_all()
            os.utime(self._folder / key)
            with contextlib.suppress(FileNotFoundError):  # another one drops them at this moment
                drop_old(self._folder)
        except OSError as error:
            raise ClusterError(
                f"the environment of {lock.name} cannot be made in {self._folder}: {error.strerror}. Free some room, "
                "or let this user write there; XDG_CACHE_HOME moves it."
            ) from error
        return str(found / "bin" / "python")

    def _find(self, lock: LockFile, key: str, making: Callable[[], None]) -> Path:
        """Return a whole environment once this process, or another one, has made it."""
        making()
        with open(self._folder / f"{key}.making", "wb") as alone:
            fcntl.flock(alone, fcntl.LOCK_EX)
            self._inherited = (alone.fileno(),)
            return self._current(key) or self._make(lock, key)

    def close(self) -> None:
        """End what makes an environment, and let go of the one in use. Safe to call again."""
        with self._closing:
            self._is_closed = True
            self._held.close()
            if self._process is not None and self._process.poll() is None:
                os.killpg(self._process.pid, signal.SIGKILL)

    def _key(self, lock: LockFile) -> str:
        parts = (lock.digest, platform.machine(), platform.python_version(), sys.base_prefix, str(_own_package()))
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()

    def _current(self, key: str) -> Path | None:
        try:
            return self._folder / key / (self._folder / key / "current").read_text()
        except FileNotFoundError:
            return None

    def _make(self, lock: LockFile, key: str) -> Path:
        shutil.rmtree(self._folder / key, ignore_errors=True)
        (self._folder / key).mkdir()
        made = Path(tempfile.mkdtemp(prefix="made-", dir=self._folder / key))
        try:
            self._install(lock, made)
            if not lock.names_nfold:
                _link_nfold(made)
            self._check(lock, made)
        except BaseException:
            shutil.rmtree(made, ignore_errors=True)
            raise
        half = self._folder / key / "half"
        half.write_text(made.name)
        half.replace(half.with_name("current"))
        return made

    def _install(self, lock: LockFile, made: Path) -> None:
        listed, python, uv = made / "lock.txt", str(made / "bin" / "python"), shutil.which("uv")
        if uv:
            self._run(lock, [uv, "venv", "--quiet", "--allow-existing", "--python", self._interpreter, str(made)])
        else:
            self._run(lock, [self._interpreter, "-m", "venv", "--without-pip", str(made)])
        listed.write_text(lock.text)
        if uv:
            self._run(lock, [uv, "pip", "install", "--python", python, "--no-deps", "-r", str(listed)])
            self._run(lock, [uv, "pip", "check", "--python", python])
        else:
            pip = [self._interpreter, "-m", "pip", "--python", python, "--no-input", "--disable-pip-version-check"]
            self._run(lock, [*pip, "install", "--no-deps", "-r", str(listed)])
            self._run(lock, [*pip, "check"])

    def _check(self, lock: LockFile, made: Path) -> None:
        facts = json.loads(self._run(lock, [str(made / "bin" / "python"), "-P", "-c", _FACTS]).splitlines()[-1])
        if facts["lacks"]:
            raise ClusterError(
                f"{lock.name} lacks {', '.join(facts['lacks'])}, which nfold needs. Write it where nfold is installed: "
                "pip freeze --all --exclude-editable"
            )
        if facts["nfold"] != __version__:
            raise ClusterError(
                f"{lock.name} has nfold {facts['nfold']}, and this run nfold {__version__}. Leave it out."
            )

    def _run(self, lock: LockFile, command: list[str]) -> str:
        process = self._begin(command)
        said, _ = process.communicate()
        if process.returncode:
            raise ClusterError(f"the environment of {lock.name} cannot be made: {_reason(said)}")
        return said

    def _begin(self, command: list[str]) -> "subprocess.Popen[str]":
        with self._closing:
            if self._is_closed:
                raise ClusterError("the job is over")
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=self._inherited,
                text=True,
                errors="replace",
                start_new_session=True,
            )
            return self._process


def drop_old(folder: Path) -> None:
    """Remove all but the newest environments of a folder; none that is being made or used can be locked."""
    made = [each for each in folder.iterdir() if each.is_dir()]
    for old in sorted(made, key=lambda each: each.stat().st_mtime)[:-_KEPT]:
        with open(old.with_suffix(".lock"), "wb") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            shutil.rmtree(old, ignore_errors=True)


def _own_package() -> Path:
    return Path(__file__).resolve().parents[2]


def _link_nfold(made: Path) -> None:
    """Let the environment find this nfold, and nothing that is installed beside it."""
    beside = made / "nfold-of-the-agent"
    beside.mkdir()
    (beside / "nfold").symlink_to(_own_package(), target_is_directory=True)
    packages = next((made / "lib").glob("python*/site-packages"))
    (packages / "nfold-of-the-agent.pth").write_text(f"{beside}\n")


def _reason(said: str) -> str:
    """Return what pip or uv said of an error, and whether no index could be reached."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    errors = [line.partition(":")[2].strip() for line in lines if line.lower().startswith(("error:", "cause:"))]
    told = "; ".join(errors[:2]) or (lines or ["it said nothing"])[-1]
    unreached = any("connection broken" in line or "Failed to fetch" in line for line in lines)
    return f"{told}. The package index cannot be reached from there" if unreached else told
