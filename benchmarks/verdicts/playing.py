"""Plays a case on an emulated cluster. Needs root, `ip` and `tc`."""

import tempfile
from pathlib import Path

from cases import Case, Machine

import nfold
from nfold.core.report import Report

PROGRAMS = Path(__file__).parents[1] / "programs"


def cluster_toml(machines: tuple[Machine, ...]) -> str:
    """Return the cluster file of a case."""
    return "\n".join(
        f'[[node]]\nname = "n{index}"\ncores = {each.cores}\nmemory = "{each.memory}"\nuplink = "{each.uplink}"\n'
        f'downlink = "{each.downlink}"\nlatency = "{each.latency}"\n'
        for index, each in enumerate(machines)
    )


def play(case: Case) -> Report:
    """Train for some steps on the case's cluster, and leave nothing."""
    with tempfile.TemporaryDirectory() as folder:
        return play_in(case, Path(folder) / "run")


def play_in(case: Case, out: Path) -> Report:
    """Do the same and keep the run's folder."""
    cluster = out.with_suffix(".toml")
    cluster.write_text(cluster_toml(case.machines))
    return nfold.train(
        str(PROGRAMS / case.program),
        emulate=cluster,
        fault=case.faults,
        strategy=case.strategy,
        workers=len(case.machines) - case.servers,
        servers=case.servers,
        chunks=case.chunks,
        steps=case.steps,
        evaluate=False,
        checkpoint_every=0,
        out=out,
    ).report
