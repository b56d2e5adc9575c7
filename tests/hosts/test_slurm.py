"""The manager for Slurm, with answers of our own in place of Slurm's programs."""

import pytest
from stub_agents import TOKEN

from nfold.errors import ClusterError
from nfold.hosts.manager import Call, PlaceState
from nfold.hosts.managers.slurm.slurm import FRESH_S, Slurm, slurm_manager
from nfold.hosts.managers.slurm.slurm_allocation import SlurmAllocation

CALL = Call(addresses=(("10.0.0.1", 7000),), token=TOKEN, interpreter="/opt/python")


class FakeSlurm:
    """Answers by the name of the program, and remembers what it was asked."""

    def __init__(self):
        self.asked, self.given, self.environments = [], [], []
        self.queue, self.details, self.now_s = "", "", 0.0
        self.refuses = {}
        self._next = 100

    def __call__(self, command, *, given="", environment=None):
        self.asked.append(list(command))
        match command[0]:
            case "sinfo":
                return "short*|4|10:00|5:00\nprod|2|infinite|n/a\n"
            case "scontrol" if "hostnames" in command:
                return command[-1].replace(",", "\n")
            case program if program in self.refuses:
                raise ClusterError(f"Slurm refuses: {self.refuses[program]}")
            case "sbatch":
                self.given.append(given)
                self.environments.append(environment)
                self._next += 1
                return f"{self._next}\n"
            case "squeue":
                return self.queue
            case "scontrol":
                return self.details
        return ""

    def asked_of(self, program):
        return [command for command in self.asked if command[0] == program]


@pytest.fixture
def slurm():
    return FakeSlurm()


def manager(slurm, folder, partition="", **fields):
    return Slurm(partition, logs=folder, ask=slurm, clock=lambda: slurm.now_s, **fields)


def test_a_pool_is_a_job_for_each_place(slurm, tmp_path):
    pool = manager(slurm, tmp_path)
    pool.start(CALL, 2)
    pool.start(CALL, 1)

    jobs = slurm.asked_of("sbatch")
    assert len(jobs) == 3
    assert all("--nodes=1" in job and "--partition=short" in job for job in jobs)
    assert len({word for job in jobs for word in job if word.startswith("--job-name=nfold-")}) == 1
    assert [f"$(({place} + SLURM_PROCID))" in text for place, text in enumerate(slurm.given)] == [True] * 3
    assert slurm.environments == [{"NFOLD_TOKEN": TOKEN}] * 3
    assert TOKEN not in str(slurm.asked) + str(slurm.given)


def test_a_gang_is_one_job(slurm, tmp_path):
    gang = manager(slurm, tmp_path, gang=True)
    gang.start(CALL, 3)

    (job,) = slurm.asked_of("sbatch")
    assert "--nodes=3" in job
    slurm.queue = "101|RUNNING|None|now|n1,n2,n5\n"
    assert gang.states() == [
        PlaceState(place=place, name=name, stage="running") for place, name in enumerate(("n1", "n2", "n5"))
    ]
    gang.release(0)
    gang.release(2)
    assert slurm.asked_of("scancel") == []
    assert [state.stage for state in gang.states()] == ["ended", "running", "ended"]
    gang.release(1)
    assert slurm.asked_of("scancel") == [["scancel", "--quiet", "101"]]


def test_the_time_that_there_is(slurm, tmp_path):
    assert manager(slurm, tmp_path).most_time_s == 300.0
    assert manager(slurm, tmp_path, limit_s=599.0).most_time_s == 600.0
    assert manager(slurm, tmp_path, "prod").most_time_s is None


def test_more_time_than_the_partition_gives_is_refused(slurm, tmp_path):
    with pytest.raises(ClusterError, match="partition short lets a job run for 10 minutes at most, and 11 are"):
        manager(slurm, tmp_path, limit_s=660.0)


def test_more_nodes_than_the_partition_has_are_refused_before_anything_is_submitted(slurm, tmp_path):
    pool = manager(slurm, tmp_path, "prod")
    with pytest.raises(ClusterError, match="Slurm partition prod has 2 nodes, and 3 are asked for"):
        pool.start(CALL, 3)
    with pytest.raises(ClusterError, match="has 2 nodes"):
        pool.dry_run(CALL, 3)
    assert slurm.asked_of("sbatch") == []

    pool.start(CALL, 2)
    with pytest.raises(ClusterError, match="2 are asked for already, and 1 more"):
        pool.start(CALL, 1)
    pool.release(0)
    pool.start(CALL, 1)


def test_shares_of_nodes_may_be_more_than_nodes(slurm, tmp_path):
    manager(slurm, tmp_path, "prod", cpus=1).start(CALL, 3)

    assert len(slurm.asked_of("sbatch")) == 3


def test_places_that_wait_say_why_in_the_words_of_slurm(slurm, tmp_path):
    pool = manager(slurm, tmp_path)
    pool.start(CALL, 2)
    slurm.queue = "101|PENDING|Priority|2026-11-26T14:05:00|\n102|RUNNING|None|2026-11-26T13:00:00|n3\n"

    assert pool.states() == [
        PlaceState(place=0, name="", stage="waiting", reason="Priority, expected to start at 2026-11-26T14:05:00"),
        PlaceState(place=1, name="n3", stage="running"),
    ]


def test_slurm_is_asked_for_all_jobs_at_once_and_seldom(slurm, tmp_path):
    pool = manager(slurm, tmp_path)
    pool.start(CALL, 3)
    slurm.queue = "".join(f"{number}|PENDING|Resources|N/A|\n" for number in (101, 102, 103))
    for _ in range(5):
        pool.states()
    assert len(slurm.asked_of("squeue")) == 1

    slurm.now_s += FRESH_S
    pool.states()
    assert len(slurm.asked_of("squeue")) == 2


def test_how_a_job_ended_is_asked_once(slurm, tmp_path):
    pool = manager(slurm, tmp_path)
    pool.start(CALL, 1)
    slurm.queue, slurm.details = "101|PREEMPTED|None|now|n1\n", "JobState=PREEMPTED Reason=None ExitCode=0:15"

    (state,) = pool.states()
    slurm.now_s += FRESH_S
    pool.states()

    assert (state.stage, state.name) == ("ended", "n1")
    assert state.reason == "ended as PREEMPTED: a job that goes before it took its node"
    assert len([command for command in slurm.asked_of("scontrol") if "job" in command]) == 1


def test_a_job_that_slurm_has_forgotten_is_over(slurm, tmp_path):
    pool = manager(slurm, tmp_path)
    pool.start(CALL, 1)
    slurm.queue = "101|RUNNING|None|now|n1\n"
    pool.states()
    slurm.queue, slurm.now_s = "", FRESH_S
    slurm.refuses["scontrol"] = "slurm_load_jobs error: Invalid job id specified"

    (state,) = pool.states()

    assert state == PlaceState(
        place=0, name="n1", stage="ended", reason="ended, minutes ago, so that Slurm does not know any more how"
    )


def test_a_slurm_that_does_not_answer_is_told_and_ends_nothing(slurm, tmp_path):
    pool = manager(slurm, tmp_path)
    pool.start(CALL, 1)
    slurm.queue = "101|RUNNING|None|now|n1\n"
    pool.states()
    slurm.refuses["squeue"], slurm.now_s = "Unable to contact slurm controller", FRESH_S

    (state,) = pool.states()

    assert (state.stage, state.name) == ("running", "n1")
    assert "Unable to contact slurm controller" in state.reason


def test_everything_is_given_back_by_name_also_when_a_submission_failed(slurm, tmp_path):
    pool = manager(slurm, tmp_path)
    pool.start(CALL, 1)
    (tmp_path / "slurm-101.out").write_text("No module named nfold\n")
    assert pool.last_lines(0) == ["No module named nfold"]
    slurm.refuses["sbatch"] = "Job violates accounting/QOS policy"
    with pytest.raises(ClusterError, match="Job violates accounting/QOS policy"):
        pool.start(CALL, 1)

    pool.close()
    pool.close()

    name = next(word for word in slurm.asked_of("sbatch")[0] if word.startswith("--job-name="))
    assert slurm.asked_of("scancel")[0] == ["scancel", "--quiet", "--me", name.replace("--job-", "--")]
    assert list(tmp_path.iterdir()) == []


def test_a_job_that_is_over_is_released_without_a_word(slurm, tmp_path):
    pool = manager(slurm, tmp_path)
    pool.start(CALL, 1)
    slurm.refuses["scancel"] = "scancel: error: Kill job error on job id 101: Invalid job id specified"
    pool.release(0)
    pool.release(0)

    slurm.refuses["scancel"] = "Access/permission denied"
    with pytest.raises(ClusterError, match="permission denied"):
        pool.release(0)


def test_inside_of_a_job_its_nodes_are_taken_unless_a_partition_is_named(slurm, tmp_path):
    inside = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n1,n2"}

    assert isinstance(slurm_manager("", logs=tmp_path, environment=inside, ask=slurm), SlurmAllocation)
    assert isinstance(slurm_manager("prod", logs=tmp_path, environment=inside, ask=slurm), Slurm)
    assert isinstance(slurm_manager("", logs=tmp_path, environment={}, ask=slurm), Slurm)
    with pytest.raises(ClusterError, match="inside of Slurm job 7, whose nodes are taken as they are"):
        slurm_manager("", logs=tmp_path, gang=True, environment=inside, ask=slurm)


@pytest.mark.parametrize(
    ("details", "reason"),
    [
        ("JobId=7 JobState=RUNNING", "exited with code 3"),
        ("JobId=7 JobState=COMPLETING", ""),
        (
            "JobId=7 JobState=TIMEOUT ExitCode=0:15",
            "was lost with job 7, which ended as TIMEOUT: its time limit is over",
        ),
    ],
)
def test_an_allocation_that_is_over_says_more_than_srun(slurm, tmp_path, details, reason):
    (tmp_path / "srun").write_text("#!/bin/sh\nexit 3\n")
    (tmp_path / "srun").chmod(0o755)
    inside = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n1", "PATH": f"{tmp_path}"}
    allocation = SlurmAllocation(environment=inside, ask=slurm)
    slurm.details = details
    allocation.start(CALL, 1)
    allocation._agents._children[0]._process.wait(30.0)

    assert allocation.states() == [PlaceState(place=0, name="n1", stage="ended", reason=reason)]
    slurm.refuses["scontrol"] = "Unable to contact the controller"
    assert [state.reason for state in allocation.states()] == ["exited with code 3"]
    allocation.close()


def test_an_allocation_gives_each_node_once(slurm):
    slurm.queue = "9:55\n"
    allocation = SlurmAllocation(environment={"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n1,n2"}, ask=slurm)

    assert (allocation.title, allocation.most_time_s) == ("Slurm job 7", 595.0)
    commands = allocation.dry_run(CALL, 2).splitlines()
    assert [f"--nodelist={node} " in line for node, line in zip(("n1", "n2"), commands, strict=True)] == [True, True]
    assert "--token-file - --place 1 --name n2" in commands[1]
    with pytest.raises(ClusterError, match="Slurm job 7 has 2 nodes, 2 of them without an agent, and 3 are asked"):
        allocation.start(CALL, 3)
