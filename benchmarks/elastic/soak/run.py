"""Hosts join, leave, stall and are killed at random while a run trains: does it hang, miscount, grow or learn less?"""

import argparse
import os
import random
import sys
import tempfile
import time
from collections import Counter
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from safetensors.torch import load_file

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent.parent)]
from elastic_run import TICK, ElasticRun, NfoldRun, children  # noqa: E402  a script's siblings are found only after this
from environment import write  # noqa: E402

SCRIPT = HERE / "program.py"
MOST = 6
HUNG_S = 120.0
"""Without a step: a silent rank is given up after 60 s."""
SETTLED_S = 30.0
OTHERS = 0.15
"""The share of disturbances that hit a host which is only getting ready."""
EQUAL = 1e-9
"""Sums in another order differ in the last bits, which training carries on."""


class Soak:
    """One run, and what is done to it."""

    def __init__(self, run: ElasticRun, draw: random.Random) -> None:
        self.run, self._draw, self._names = run, draw, (f"host-{number}" for number in count())
        self.done: Counter[str] = Counter()
        self.sizes: list[dict[str, int]] = []

    def begin(self) -> None:
        """Let the first two hosts join."""
        self._join()
        self._join()

    def disturb(self) -> str:
        """Do one thing at random that leaves a host; return what."""
        run, draw = self.run, self._draw
        for name in [name for name, host in run.hosts.items() if host.poll() is not None]:
            del run.hosts[name]  # it was given back
        training, others = run.training(), [name for name in run.hosts if name not in run.training()]
        wishes = ["join"] * 3 if len(run.hosts) < MOST else []
        wishes += ["stall"] if training else []
        wishes += ["leave", "kill", "kill_rank"] if len(training) > 1 else []
        wishes += ["leave two", "kill two"] if len(training) > 2 else []
        if others and draw.random() < OTHERS:
            training, wishes = others, ["leave", "kill"]
        kind = draw.choice(wishes)
        chosen = draw.choice(training) if training and kind != "join" else ""
        match kind:
            case "join":
                self._join()
            case "leave":
                run.leave(chosen)
            case "kill":
                run.kill(chosen)
            case "kill_rank":
                run.kill_rank(chosen)
            case "stall":
                run.stall(chosen, draw.uniform(0.2, 3.0))
            case "leave two":
                self._two(run.leave)
            case "kill two":
                self._two(run.kill)
        self.done[kind] += 1
        return f"{kind} {chosen}"

    def measure(self) -> dict[str, int]:
        """Return what the command and the oldest host's processes hold."""
        held = {f"command {what}": number for what, number in _held(self.run.process.pid).items()}
        held["shared memory"] = len(os.listdir("/dev/shm"))
        held["processes"] = len(children(self.run.process.pid))
        self.sizes.append(held)
        return held

    def _join(self) -> None:
        self.run.join(next(self._names))

    def _two(self, do: Any) -> None:
        for name in self._draw.sample(self.run.training(), 2):
            do(name)


def _held(pid: int) -> dict[str, int]:
    process = Path(f"/proc/{pid}")
    status = dict(line.split(":", 1) for line in (process / "status").read_text().splitlines())
    return {
        "KiB": int(status["VmRSS"].split()[0]),
        "threads": int(status["Threads"]),
        "descriptors": len(os.listdir(process / "fd")),
    }


def undisturbed(steps: int, folder: Path) -> dict[str, Any]:
    """Return the parameters and metrics of a run of one rank that nobody disturbs."""
    os.environ["READ_S"] = "0"
    run = NfoldRun(SCRIPT, folder, "-n", "1", "--strategy", "single", "--chunks", str(MOST), "--steps", str(steps))
    run.process.wait()
    return {"parameters": load_file(folder / "model.safetensors"), "metrics": run.evaluations()[-1]["metrics"]}


def soak(given: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Play one run to its end; return what was done and found."""
    os.environ["READ_S"] = str(given.read_s)
    flags = ("--nodes", f"1:{MOST}", "--strategy", given.strategy, "--steps", str(given.steps))
    run = ElasticRun(SCRIPT, folder, *flags, "--checkpoint-every", str(given.checkpoint_every))
    played = Soak(run, random.Random(given.seed))
    played.begin()
    try:
        is_hung = not run.until(lambda: run.last_step > 0, HUNG_S)
        while not is_hung and run.process.poll() is None:
            step, begin_s = run.last_step, time.monotonic()
            print(
                f"{step:6} {played.disturb():20} {played.measure() if run.process.poll() is None else ''}", flush=True
            )
            TICK.wait(random.uniform(given.least_s, given.most_s))
            left_s = HUNG_S - (time.monotonic() - begin_s)
            is_hung = not run.until(partial(_is_past, run, step), left_s) and run.process.poll() is None
        if is_hung:
            sys.exit(f"no step for {HUNG_S:.0f} s after step {run.last_step}; {run.process.pid} is left as it is")
        if run.process.wait(SETTLED_S):
            sys.exit(f"it ended with {run.process.returncode}: {run.said.read_text()[-2000:]}")
    finally:
        if run.process.poll() is not None:
            run.close()
    steps = [line["step"] for line in run.steps()]
    return {
        "steps": len(steps),
        "each_once": steps == list(range(1, given.steps + 1)),
        "done": dict(played.done),
        "kept_in_ledger": dict(Counter(event["kind"] for event in run.events())),
        "held": played.sizes,
        "metrics": run.evaluations()[-1]["metrics"],
        "parameters": load_file(folder / "model.safetensors"),
    }


def _is_past(run: NfoldRun, step: int) -> bool:
    return run.last_step > step


def main() -> None:
    """Disturb a run, play another one undisturbed, compare, and write result.json."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--steps", type=int, default=5000)
    options.add_argument("--strategy", default="ring")
    options.add_argument("--checkpoint-every", type=int, default=50)
    options.add_argument("--least-s", type=float, default=1.0, help="between two disturbances")
    options.add_argument("--most-s", type=float, default=5.0)
    options.add_argument("--read-s", type=float, default=0.004, help="that reading a sample takes")
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--keep", help="a folder for the runs")
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        where = Path(given.keep or temporary)
        found = soak(given, where / "disturbed")
        alone = undisturbed(given.steps, where / "alone")
    theirs, own = found.pop("parameters"), alone["parameters"]
    found["largest_difference"] = max(float((theirs[name] - own[name]).abs().max()) for name in own)
    found["metrics_undisturbed"] = alone["metrics"]
    write(found, __file__)
    print({name: value for name, value in found.items() if name != "held"})
    if not found["each_once"] or found["largest_difference"] > EQUAL:
        sys.exit("the disturbed run did not end where the other one did")


if __name__ == "__main__":
    main()
