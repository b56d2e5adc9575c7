"""MPI as a transport beside TCP, and what is said to commands that Slurm or MPI cannot help with."""

import importlib.util
import json
import shutil
import sys

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


@pytest.mark.processes
@pytest.mark.skipif(shutil.which("mpirun") is None, reason="there is no mpirun (Debian: openmpi-bin)")
@pytest.mark.skipif(importlib.util.find_spec("mpi4py") is None, reason="there is no mpi4py (pip: nfold[mpi])")
@pytest.mark.parametrize("count", [2, pytest.param(4, marks=pytest.mark.exhaustive)])
def test_ranks_that_talk_through_mpi(shell, here, count):
    shell.environment |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    shell.environment["XDG_CACHE_HOME"] = str(shell.folder / "cache")
    mpirun = ("mpirun", "--oversubscribe", "--bind-to", "none", "-np", str(count), sys.executable, "-m", "nfold")

    train = (*RING, "--on", "mpi", "--transport", "mpi", "--out", "there", "--json")
    result = shell.finish(shell.start_program(*mpirun, *train))

    assert result.code == 0, result
    assert f"{count} hosts by MPI: " in result.err
    check_same(shell, here)
    report = json.loads((shell.folder / "there" / "report.json").read_text())
    assert report["sent_bytes_per_step"] == report["predicted"]["sent_bytes_per_step"] > 0


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
