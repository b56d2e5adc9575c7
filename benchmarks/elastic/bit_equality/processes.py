"""Plays a random schedule on hosts that are processes, with --exact, and compares bits with one device's.

Hosts join, leave (SIGTERM), stall (SIGSTOP) and are killed (SIGKILL), alone or two at once, or only their ranks are. As
root each has a network of its own, and is cut off, too, some for so long that it is given up.
"""

import contextlib
import os
import random
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from elastic_run import ElasticRun, NfoldRun
from hosts_at import Hosts
from networks import Networks  # found by hosts_at
from random_hosts import SPARE, HungError, RandomHosts
from safetensors.torch import load_file
from schedules import net_and_strategy

from nfold.planning.choosing.strategies import PLACING

HERE = Path(__file__).parent
NETS = HERE.parents[2] / "tests" / "runtime" / "nets.py"
MOST = 4
STEPS = 400
READ_S = 0.01
"""That reading a sample takes: a batch has 16, and hosts share them."""
BETWEEN_S = (0.5, 4.0)
HUNG_S = 200.0
"""Without a step: a host that is cut off is given up after 60 s, and two may be."""
ENDS_WITHIN_S = 60.0
ALONE_WITHIN_S = 120.0
CHECKPOINT_EVERY = 5


def played(number: int, folder: Path) -> dict[str, Any]:
    """Play one schedule on processes, and as many steps on one device; `hung` and `code` say why it has no end."""
    net, strategy = net_and_strategy(number)
    row: dict[str, Any] = {"number": number, "net": net, "strategy": strategy, "steps": STEPS}
    script, least = _program(folder), 2 if strategy in PLACING else 1  # a cut takes two hosts
    with _networks() as hosts:
        listens_at = "127.0.0.1:0" if hosts is None else f"{hosts.address}:0"
        flags = (*_flags(strategy), "--nodes", f"{least}:{MOST}", "--checkpoint-every", str(CHECKPOINT_EVERY))
        run = ElasticRun(script, folder / "run", *flags, at=listens_at, environment=_environment(net, READ_S))
        disturbing, told = RandomHosts(run, random.Random(number), least, MOST, hosts), []
        try:
            disturbing.play(BETWEEN_S, HUNG_S, lambda step, what: told.append(f"{step}: {what}"))
            row["code"] = run.process.wait(ENDS_WITHIN_S)
        except (HungError, subprocess.TimeoutExpired) as hung:
            row["hung"] = str(hung)
        finally:
            run.close()
    row["events"] = list(disturbing.done.elements())
    if row.get("code") != 0:
        return row | {"told": told, "said": run.said.read_text()[-3000:]}
    alone = NfoldRun(script, folder / "alone", "-n", "1", *_flags("single"), environment=_environment(net, 0.0))
    alone.process.wait(ALONE_WITHIN_S)
    own, theirs = (load_file(one.folder / "model.safetensors") for one in (run, alone))
    steps = [line["step"] for line in run.steps()]
    differing = [name for name in own | theirs if not _equal(own.get(name), theirs.get(name))]
    return row | {"unlike": differing, "each_once": steps == list(range(1, STEPS + 1))}


def _flags(strategy: str) -> tuple[str, ...]:
    return ("--exact", "--strategy", strategy, "--chunks", str(MOST), "--steps", str(STEPS))


def _environment(net: str, read_s: float) -> dict[str, str]:
    return {"NET": net, "READ_S": str(read_s)}


def _program(folder: Path) -> Path:
    """Lay the script where only what it needs lies beside it: that is sent to hosts."""
    (folder / "program").mkdir()
    shutil.copy(NETS, folder / "program")
    return Path(shutil.copy(HERE / "program.py", folder / "program"))


@contextlib.contextmanager
def _networks() -> Iterator[Hosts | None]:
    """Make networks for hosts, as root only."""
    if os.geteuid() != 0:
        yield None
        return
    networks = Networks(MOST + SPARE)
    try:
        yield Hosts(networks)
    finally:
        networks.close()


def _equal(one: torch.Tensor | None, other: torch.Tensor | None) -> bool:
    return one is not None and other is not None and torch.equal(one, other)
