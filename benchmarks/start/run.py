"""Times from a command to the end of its first step: nfold's first and second run of a program, and torchrun."""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
from environment import known, stamp, write  # noqa: E402  a script's siblings are found only after this

PROGRAMS = {
    "digits": str(HERE.parents[1] / "examples" / "digits.py"),
    "ResNet-18": f"{HERE.parent / 'programs' / 'nets32.py'}:program_resnet18",
}
NUM_STEPS = 3
POLL_S = 0.005
TIMEOUT_S = 180.0


def begun_s(command: list[str], begun: Path, cache: Path) -> float:
    """Run a command to its end; return the seconds until the file is there that its first step leaves."""
    began = time.perf_counter()
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache)}
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
    try:
        while not (begun.exists() and begun.stat().st_size):
            if process.poll() is not None or time.perf_counter() - began > TIMEOUT_S:
                raise SystemExit(f"{' '.join(command)} did not begin to train")
            time.sleep(POLL_S)
        taken = time.perf_counter() - began
    finally:
        if process.wait() != 0:
            raise SystemExit(f"{' '.join(command)} failed")
    return taken


def compare(script: str, workers: int, repeats: int) -> dict[str, list[float]]:
    """Start a program three ways, turn by turn, each round with a cache that is empty at first."""
    found: dict[str, list[float]] = {"first run": [], "second run": [], "torchrun": []}
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as folder:
            here = Path(folder)
            for name in ("first run", "second run"):
                out = here / name.replace(" ", "-")
                found[name].append(begun_s(_nfold(script, workers, out), out / "history.jsonl", here / "cache"))
            found["torchrun"].append(
                begun_s(_torchrun(script, workers, here / "begun"), here / "begun", here / "cache")
            )
    return found


def _nfold(script: str, workers: int, out: Path) -> list[str]:
    command = [str(Path(sys.executable).with_name("nfold")), "train", script, "-n", str(workers), "--out", str(out)]
    return [*command, "--steps", str(NUM_STEPS)]


def _torchrun(script: str, workers: int, begun: Path) -> list[str]:
    command = [str(Path(sys.executable).with_name("torchrun")), "--nproc-per-node", str(workers)]
    return [*command, "--master-port", "29511", str(HERE / "ddp.py"), script, str(begun)]


def main() -> None:
    """Measure, print and write result.json."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--repeats", type=int, default=5)
    options.add_argument("--workers", type=int, default=2)
    options.add_argument(
        "--programs", nargs="*", default=PROGRAMS, choices=PROGRAMS, help="the others stay as they were"
    )
    chosen = options.parse_args()
    result = known(__file__)
    for name in chosen.programs:
        seconds = compare(PROGRAMS[name], chosen.workers, chosen.repeats)
        medians = {way: statistics.median(each) for way, each in seconds.items()}
        result[name] = {"workers": chosen.workers, "median_s": medians, "seconds": seconds, **stamp()}
        print(name, *(f"{way} {median:.1f} s" for way, median in medians.items()), sep="   ", flush=True)
        write(result, __file__)


if __name__ == "__main__":
    main()
