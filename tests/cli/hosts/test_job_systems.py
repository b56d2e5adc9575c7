"""Commands that Slurm or MPI cannot help with: what is said."""

import pytest


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
