"""MPI as a transport beside TCP, and what is said to commands that Slurm or MPI cannot help with."""

import importlib.util
import json
import os
import shutil
import signal
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

RING = ("train", "steady.py", "--strategy", "ring")


@pytest.fixture
def here(nfold, tmp_path):
    """What two ranks of this machine learn."""
    result = nfold(*RING, "-n", "2", "--debug", "--out", "here")
    assert result.code == 0, result
    return load_file(tmp_path / "here" / "model.safetensors")


def check_same(shell, here):
    there = load_file(shell.folder / "there" / "model.safetensors")
    assert all(torch.allclose(here[name], there[name], rtol=0, atol=1e-6) for name in here)


@pytest.fixture
def mpirun(shell):
    """Start a run on so many processes of MPI, whose ranks talk through it."""
    if shutil.which("mpirun") is None or importlib.util.find_spec("mpi4py") is None:
        pytest.skip("there is no mpirun (Debian: openmpi-bin), or no mpi4py (pip: nfold[mpi])")
    shell.environment |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    shell.environment["XDG_CACHE_HOME"] = str(shell.folder / "cache")

    def start(count, *more):
        words = ("mpirun", "--oversubscribe", "--bind-to", "none", "-np", str(count), sys.executable, "-m", "nfold")
        return shell.start_program(*words, *RING, "--on", "mpi", "--transport", "mpi", "--out", "there", *more)

    return start


@pytest.mark.processes
@pytest.mark.parametrize("count", [2, pytest.param(4, marks=pytest.mark.exhaustive)])
def test_ranks_that_talk_through_mpi(shell, here, mpirun, count):
    result = shell.finish(mpirun(count, "--json"))

    assert result.code == 0, result
    assert f"{count} hosts by MPI: " in result.err
    check_same(shell, here)
    report = json.loads((shell.folder / "there" / "report.json").read_text())
    assert report["sent_bytes_per_step"] == report["predicted"]["sent_bytes_per_step"] > 0


@pytest.mark.processes
def test_a_rank_in_mpi_that_dies_is_named_before_mpirun_speaks(shell, mpirun):
    shell.environment["EPOCHS"] = "4000"
    job = mpirun(2)
    assert any(line.startswith("epoch 2/") for line in job.stderr)
    ranks = [pid for pid in shell.processes() if b"mpi_rank" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    os.kill(ranks[-1], signal.SIGKILL)

    result = shell.finish(job)

    assert result.code == 2
    said = result.err[result.err.index("nfold: rank ") :].partition("\n----")[0]
    assert "was killed by signal 9 (SIGKILL) on " in said
    assert "nfold train --resume there" in said
    assert said.count("\n") <= 6


@pytest.mark.parametrize("command", ["train", "plan", "compare"])
def test_one_of_many_commands_does_not_train(command, nfold, monkeypatch):
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "1")
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "4")

    nfold(command, "steady.py").check_explained("Open MPI has started this command 4 times", "Give --on mpi")


def test_mpi_is_begun_with_mpirun(nfold):
    nfold("train", "steady.py", "--on", "mpi").check_explained("MPI has not started this command", "mpirun -np 4")


def test_a_machine_without_slurm(nfold, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")

    nfold("train", "steady.py", "--on", "slurm", "--nodes", "2").check_explained("there is no sinfo on this machine")
