"""Hosts join, leave, stall and are killed at random while a run trains: does it hang, miscount, grow or learn less?"""

import argparse
import contextlib
import os
import random
import signal
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from safetensors.torch import load_file

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent.parent)]
from elastic_run import ElasticRun, NfoldRun, children  # noqa: E402  a script's siblings are found only after this
from environment import write  # noqa: E402
from random_hosts import HungError, RandomHosts  # noqa: E402

SCRIPT = HERE / "program.py"
MOST = 6
HUNG_S = 120.0
"""Without a step: a silent rank is given up after 60 s."""
SETTLED_S = 30.0
EQUAL = 1e-9
"""Sums in another order differ in the last bits, which training carries on."""


class Sizes:
    """What the processes of a run hold, again and again."""

    def __init__(self, run: NfoldRun) -> None:
        self._run = run
        self.rows: list[dict[str, int]] = []

    def tell(self, step: int, what: str) -> None:
        """Print what was done after a step, and what the command and its hosts' processes hold."""
        with contextlib.suppress(FileNotFoundError, KeyError):  # it has just ended
            held = {f"command {what}": number for what, number in _held(self._run.process.pid).items()}
            held["shared memory"] = len(os.listdir("/dev/shm"))
            held["processes"] = len(children(self._run.process.pid))
            self.rows.append(held)
            print(f"{step:6} {what:20} {held}", flush=True)


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
    played, sizes = RandomHosts(run, random.Random(given.seed), 1, MOST), Sizes(run)
    try:
        played.play((given.least_s, given.most_s), HUNG_S, sizes.tell)
        if run.process.wait(SETTLED_S):
            sys.exit(f"it ended with {run.process.returncode}: {run.said.read_text()[-2000:]}")
    except HungError as hung:
        sys.exit(f"{hung}; {run.process.pid} is left as it is")
    except BaseException:
        run.close()
        raise
    run.close()
    steps = [line["step"] for line in run.steps()]
    return {
        "steps": len(steps),
        "each_once": steps == list(range(1, given.steps + 1)),
        "done": dict(played.done),
        "kept_in_ledger": dict(Counter(event["kind"] for event in run.events())),
        "held": sizes.rows,
        "metrics": run.evaluations()[-1]["metrics"],
        "parameters": load_file(folder / "model.safetensors"),
    }


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
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # whoever ends it ends its hosts, too
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
