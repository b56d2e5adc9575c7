"""Stops whole commands at random points of a move, lets them go on with --resume, and looks at every sample."""

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import uuid
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
sys.path.insert(0, str(HERE.parents[1]))
from environment import write  # noqa: E402  a script's siblings are found only after this

from nfold.core import codec  # noqa: E402
from nfold.core.residency import PlacedData  # noqa: E402
from nfold.runtime.samples.journal import Entry, journal_of  # noqa: E402
from nfold.runtime.samples.kept_files import KeptFiles  # noqa: E402
from nfold.runtime.samples.record import item_to_bytes  # noqa: E402
from program import HELD, item, write_photos  # noqa: E402

VICTIMS = ("the command", "the rank that sends", "a rank that fetches", "the host of a rank that fetches", "all")
"""Killed with SIGKILL."""
STOPS = ("Ctrl-C", "SIGTERM", "nfold stop")
WAYS = (*VICTIMS, *STOPS)
TAG = "NFOLD_EXACTLY_ONCE"
ENDED_S = 20.0
"""Within which nothing of a command is left that was stopped."""
TICK = threading.Event()
"""Never set: to look again after a while."""


@dataclass(frozen=True, slots=True)
class Place:
    """A folder in which one run is begun, stopped and gone on with."""

    folder: Path
    kind: str
    tag: str
    cache: Path
    """Of all runs: programs, and what was measured of them."""
    is_idle: bool = False
    """Whether its commands have what others leave of the processors."""

    def start(self, *arguments: str) -> "subprocess.Popen[str]":
        """Start `nfold ARGUMENTS`."""
        own = {"EXACTLY_ONCE_KIND": self.kind, "EXACTLY_ONCE_FILES": str(self.folder / "photos"), TAG: self.tag}
        own |= {"NFOLD_DATA": str(self.folder / "data"), "XDG_CACHE_HOME": str(self.cache)}
        return subprocess.Popen(
            [sys.executable, "-m", "nfold.cli.main", *arguments],
            cwd=self.folder,
            env={**os.environ, **own, "OMP_NUM_THREADS": "1"},
            preexec_fn=_be_idle if self.is_idle else None,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def stores(self) -> dict[str, Path]:
        """Return where each node keeps what comes to it."""
        return {path.parent.name: path.parent for path in (self.folder / "data").rglob("journal")}

    def kept(self, node: str) -> dict[int, Entry]:
        """Return what a node keeps by its journal, also while others write it."""
        store = self.stores().get(node)
        told = journal_of((store / "journal").read_bytes()).entries if store else []
        return {entry.number: entry for entry in told}

    def num_kept(self) -> int:
        """Return how many samples have come to all nodes together."""
        return sum(len(self.kept(node)) for node in HELD)

    def processes(self) -> dict[int, str]:
        """Return the processes that are left of all commands here, with what they were started as."""
        found = {}
        for entry in filter(lambda entry: entry.name.isdigit(), Path("/proc").iterdir()):
            try:
                if f"{TAG}={self.tag}".encode() in (entry / "environ").read_bytes().split(b"\0"):
                    found[int(entry.name)] = (entry / "cmdline").read_text().replace("\0", " ")
            except OSError:
                continue  # gone meanwhile
        return found

    def placed(self) -> PlacedData:
        """Return where the samples of the run are to be."""
        return codec.load(PlacedData, self.folder / "run" / "place.json")


def _be_idle() -> None:
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


def stop(place: Place, command: "subprocess.Popen[str]", way: str) -> None:
    """Stop a command, or kill a part of it."""
    if way == "nfold stop":
        place.start("stop", str(place.folder / "run")).communicate()
    elif way in STOPS:
        command.send_signal(signal.SIGINT if way == "Ctrl-C" else signal.SIGTERM)
    else:
        for pid in victims(place, command.pid, way):
            with contextlib.suppress(ProcessLookupError):  # some end with those that were killed just now
                os.kill(pid, signal.SIGKILL)


def victims(place: Place, command: int, way: str) -> list[int]:
    """Return the processes to kill."""
    running = place.processes()
    if way == "all":
        return [*running]
    if way == "the command":
        return [command]
    if way == "the host of a rank that fetches":
        return [pid for pid, line in running.items() if "--name local-1" in line]
    member = 0 if way == "the rank that sends" else 1
    return [pid for pid, line in running.items() if "rank_process" in line and f"--member {member} " in line]


def wait_until_gone(place: Place, patience_s: float) -> list[str]:
    """Wait until nothing is left of a command; return what is."""
    for _ in range(int(patience_s / 0.05)):
        if not (left := place.processes()):
            return []
        TICK.wait(0.05)
    return [*left.values()]


def expected(place: Place, number: int) -> bytes:
    """Return the bytes of a sample where it lives."""
    if place.kind == "items":
        return item_to_bytes(item(number), "item")
    node = next(node for node, numbers in HELD.items() if number in numbers)
    names = sorted(path.name for path in (place.folder / "photos" / node).iterdir())
    return (place.folder / "photos" / node / names[number - HELD[node].start]).read_bytes()


def due(place: Place) -> dict[str, set[int]]:
    """Return the samples that are to come to each node."""
    found: dict[str, set[int]] = {node: set() for node in HELD}
    placed = place.placed()
    for run in placed.runs:
        for move in run.moves:
            numbers = (number for first, end in move.spans for number in range(first, end))
            found[placed.members[move.target].node].update(numbers)
    return found


def wrong_samples(place: Place) -> list[str]:
    """Return what is wrong with the samples that have come: nothing if each is there once, and is what it was."""
    wrong = []
    for node, numbers in due(place).items():
        held = place.kept(node)
        wrong += [f"{node} lacks {number}" for number in sorted(numbers - held.keys())]
        wrong += [f"{node} has {number}, too" for number in sorted(held.keys() - numbers)]
        files = KeptFiles(place.stores()[node]) if held else None
        for number, entry in held.items():
            assert files is not None
            data = files.read(entry)
            if data is None or zlib.crc32(data) != zlib.crc32(expected(place, number)):
                wrong.append(f"{node} has another {number}")
        if files is not None:
            files.close()
    return wrong


def entry_bytes(entries: dict[int, Entry], numbers: set[int]) -> int:
    """Return the bytes that samples have when they travel: with the names of files."""
    return sum(entries[number].length + len(entries[number].name.encode()) for number in numbers)


def play(place: Place, way: str, share: float) -> dict[str, Any]:
    """Stop once, after a share of the samples has come; let the run go on, and look."""
    folder = place.folder
    write_photos(folder / "photos")
    shutil.copy(HERE / "program.py", folder)
    (folder / ".nfoldignore").write_text("photos\ndata\n")  # they are on the hosts already
    flags = ("--on", "local", "--nodes", "3", "--place", "equal", "--out", "run")
    command = place.start("train", "program.py", *flags)
    while not (folder / "run" / "place.json").exists():  # it is written before anything moves
        if command.poll() is not None:
            sys.exit(f"it ended before anything moved: {command.communicate()[0]}")
        TICK.wait(0.002)
    most = sum(map(len, due(place).values()))
    while place.num_kept() <= share * most and command.poll() is None:
        TICK.wait(0.0002)
    stop(place, command, way)
    told, _ = command.communicate(timeout=300)
    wrong = [f"{each} is left after {ENDED_S:g} s" for each in wait_until_gone(place, ENDED_S)]
    if way in STOPS and "--resume" not in told and "samples/s" not in told:
        wrong.append(f"it was not said how the run goes on: {told[-300:]}")
    before = {node: place.kept(node) for node in HELD}
    had = sum(map(len, before.values()))
    is_over = (folder / "run" / "report.json").exists()
    if not is_over:
        again = place.start("train", "--resume", "run")
        told, _ = again.communicate(timeout=300)
        if again.returncode:
            wrong.append(f"--resume ended with {again.returncode}: {told[-500:]}")
    wrong += wrong_samples(place)
    wrong += fetched_twice(place, before) if not is_over and not wrong else []
    return {"kind": place.kind, "way": way, "had": had, "of": most, "was_moving": had < most, "wrong": wrong}


def fetched_twice(place: Place, before: dict[str, dict[int, Entry]]) -> list[str]:
    """Return what is wrong with the bytes that travelled when the run went on: those of the rest, and no more."""
    report = json.loads((place.folder / "run" / "report.json").read_text())
    came = report["places"]["before_bytes"] + report["places"]["beside_bytes"]
    rest = sum(
        entry_bytes(place.kept(node), numbers - before[node].keys()) for node, numbers in due(place).items() if numbers
    )
    return [] if came == rest else [f"{came} bytes came, and {rest} were missing"]


def main() -> None:
    """Stop many commands, print a line for each, and fail if a sample is lost, doubled, changed or fetched twice."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--times", type=int, default=100, help="commands to stop")
    options.add_argument("--way", choices=WAYS, help="how to stop them; all ways in turn unless given")
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--idle", action="store_true", help="let commands have what others leave of the processors")
    options.add_argument("--only-check", action="store_true", help="write no result")
    given = options.parse_args()
    draw, rows, cache = random.Random(given.seed), list[dict[str, Any]](), tempfile.TemporaryDirectory()
    for number in range(given.times):
        turn, index = divmod(number, len(WAYS))
        way, kind = given.way or WAYS[index], ("items", "files")[(turn + index) % 2]
        with tempfile.TemporaryDirectory() as folder:
            place = Place(Path(folder), kind, uuid.uuid4().hex, Path(cache.name), given.idle)
            row = play(place, way, draw.random())
        rows.append(row)
        told = "; ".join(row["wrong"]) or "each sample once, as it was"
        print(f"{row['kind']:6} {row['way']:32} had {row['had']:3} of {row['of']}  {told}", flush=True)
    if not given.only_check:
        result = {"stopped": len(rows), "while_moving": sum(row["was_moving"] for row in rows), "rows": rows}
        write(result, __file__)
    if bad := [row for row in rows if row["wrong"]]:
        sys.exit(f"{len(bad)} of {len(rows)} stopped commands lost, doubled or changed samples, or left something")


if __name__ == "__main__":
    main()
