"""Who started this process, and what the first of MPI's processes does; MPI itself is played."""

import os
import sys
import threading
from dataclasses import replace

import pytest
from stub_agents import TOKEN, StubAgents

from nfold.errors import ClusterError
from nfold.hosts.manager import Call, agent_command
from nfold.hosts.managers.mpi.mpi_agents import Mpi, with_others
from nfold.hosts.managers.mpi.mpi_broadcast import broadcast
from nfold.hosts.managers.mpi.mpi_start import among_mpi, check_started_alone, outside_of_mpi, started_together
from nfold.launch.mpi_process import MpiProcess

OPEN_MPI = {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "3", "PMIX_RANK": "0"}
SECOND = OPEN_MPI | {"OMPI_COMM_WORLD_RANK": "1"}
CALL = Call(addresses=(("10.0.0.1", 7000),), token=TOKEN, interpreter="/opt/python")

ASK = pytest.mark.parametrize("ask", [MpiProcess.hear, lambda process: process.tell("all")])


@pytest.mark.parametrize(
    ("environment", "by", "rank", "size"),
    [
        ({"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "4", "SLURM_PROCID": "0"}, "Open MPI", 2, 4),
        ({"PMI_RANK": "1", "PMI_SIZE": "2"}, "MPI", 1, 2),
        ({"MV2_COMM_WORLD_RANK": "1", "MV2_COMM_WORLD_SIZE": "2"}, "MVAPICH2", 1, 2),
        ({"PMIX_RANK": "3", "SLURM_STEP_NUM_TASKS": "8", "SLURM_PROCID": "3"}, "srun --mpi=pmix", 3, 8),
        ({"SLURM_PROCID": "3", "SLURM_STEP_NUM_TASKS": "8"}, "srun", 3, 8),
    ],
)
def test_who_started_this_process(environment, by, rank, size):
    started = started_together(environment)

    assert (started.by, started.rank, started.size) == (by, rank, size)


def test_a_process_that_was_started_alone():
    assert started_together({}) is None
    assert started_together({"SLURM_PROCID": "0", "SLURM_NTASKS": "4"}) is None, "a script of sbatch"
    check_started_alone({})
    check_started_alone(OPEN_MPI | {"OMPI_COMM_WORLD_SIZE": "1"})


def test_one_of_many_commands_would_train_many_times():
    with pytest.raises(ClusterError, match=r"Open MPI has started this command 3 times.*Give --on mpi"):
        check_started_alone(OPEN_MPI)


def test_mpi_is_needed_for_mpi():
    with pytest.raises(ClusterError, match=r"MPI has not started this command.*mpirun -np 4"):
        among_mpi({})
    with pytest.raises(ClusterError, match=r"srun has started this command 8 times without MPI.*srun --mpi=pmix"):
        among_mpi({"SLURM_PROCID": "3", "SLURM_STEP_NUM_TASKS": "8"})


def test_an_agent_is_none_of_the_processes_of_mpi():
    left = outside_of_mpi(OPEN_MPI | {"PMI_FD": "9", "PATH": "/bin", "NFOLD_DATA": "/data"})

    assert left == {"PATH": "/bin", "NFOLD_DATA": "/data"}


@pytest.fixture
def told():
    return []


def manager(told, **more):
    return Mpi(environment=OPEN_MPI | more, tell=lambda payload, size: told.append((payload, size)))


def test_other_nodes_than_processes_are_refused_and_nobody_is_left_to_wait(told):
    mpi = manager(told)

    with pytest.raises(ClusterError, match="--nodes 4, but Open MPI has started 3 processes"):
        mpi.start(CALL, 4)
    mpi.close()
    mpi.close()

    assert told == [("", 3)]


def test_the_first_process_tells_the_others_once_and_starts_an_agent_of_its_own(told, tmp_path):
    with StubAgents(tmp_path) as stubs:
        mpi = manager(told, PATH=os.environ["PATH"])
        assert mpi.states() == []
        mpi.start(stubs.call, 3)
        stubs.hear(1)

        assert [(state.place, state.stage) for state in mpi.states()] == [(place, "starting") for place in range(3)]
        assert stubs.hellos[0]["token"] == TOKEN
        assert not any(name.startswith("OMPI_") for name in stubs.hellos[0]["environment"])
        ((payload, size),) = told
        assert (TOKEN in payload, size) == (True, 3)
        with pytest.raises(ClusterError, match="no more places"):
            mpi.start(stubs.call, 3)
        stubs.tell(0, 7)
        assert stubs.next_word(0) == ""
        mpi.close()
        assert mpi.states()[0].reason == "exited with code 7"
        assert mpi.last_lines(0) == ["stub agent ends: 7"]
        assert mpi.last_lines(1) == []
    assert len(told) == 1


def test_what_would_be_started_is_shown_without_the_token(told):
    shown = manager(told).dry_run(CALL, 3)

    assert [f"--place {place}" in line for place, line in enumerate(shown.splitlines())] == [True] * 3
    assert TOKEN not in shown


@pytest.mark.parametrize("has_told", [True, False])
def test_the_first_process_goes_on_and_lets_the_others_go_however_it_ends(told, has_told):
    def tell(payload, size):
        told.append((payload, size))

    with pytest.raises(KeyError), with_others(OPEN_MPI, tell=tell, has_told=lambda: has_told):
        raise KeyError

    assert told == ([] if has_told else [("", 3)])


def test_without_mpi4py_the_first_process_does_not_even_begin(monkeypatch):
    monkeypatch.setitem(sys.modules, "mpi4py", None)

    with pytest.raises(ClusterError, match=r"needs mpi4py on every host.*not installed"), with_others(OPEN_MPI):
        pytest.fail("a run would have been begun")


class Hears:
    """In place of the process that enters MPI."""

    def __init__(self, text):
        self.text = text

    def hear(self):
        return self.text

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


def test_another_process_ends_well_when_no_agents_are_needed():
    with pytest.raises(SystemExit) as end, with_others(SECOND, enter=lambda *_: Hears("")):
        pytest.fail("it is not the first")

    assert end.value.code == 0


def test_another_process_does_not_train():
    with pytest.raises(ClusterError, match="this is process 1 of MPI, and the first one alone trains"):
        Mpi(environment=SECOND)


def test_mpi_is_entered_once(monkeypatch):
    claimed = threading.Event()
    claimed.set()
    monkeypatch.setattr("nfold.hosts.managers.mpi.mpi_broadcast._CLAIMED", claimed)

    with pytest.raises(ClusterError, match="brings hosts once in a command"):
        broadcast("", size=3)


@ASK
@pytest.mark.processes
def test_a_machine_without_mpi4py(tmp_path, ask):
    (tmp_path / "mpi4py.py").write_text("raise ImportError('no libmpi.so')")
    environment = os.environ | {"PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"}

    said = r"--on mpi needs mpi4py on every host.*nfold\[mpi\].*no libmpi.so"
    with MpiProcess(3, environment) as process, pytest.raises(ClusterError, match=said):
        ask(process)
    assert not process.has_left


@ASK
@pytest.mark.processes
def test_a_process_that_cannot_enter_mpi_at_all(tmp_path, ask):
    (tmp_path / "mpi4py.py").write_text("import os; os._exit(5)")

    environment = os.environ | {"PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"}

    said = "the process that should enter MPI exited with code 5"
    with MpiProcess(3, environment) as process, pytest.raises(ClusterError, match=said):
        ask(process)


def test_the_token_is_on_no_command_line_of_an_agent_in_mpi():
    command = agent_command(replace(CALL, in_mpi=True), 0, "-")

    assert "--in-mpi" in command
    assert TOKEN not in " ".join(command)
