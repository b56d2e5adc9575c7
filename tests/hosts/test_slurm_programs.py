"""What Slurm's programs print, read; and what is said where they do not answer."""

import os
import stat
import sys

import pytest

from nfold.errors import ClusterError
from nfold.hosts.managers.slurm.slurm_programs import (
    Partition,
    ask,
    choose_partition,
    how_it_ended,
    outside_of_jobs,
    read_jobs,
    read_limit_s,
    read_partitions,
)

SINFO = "short*|4|10:00|5:00\nprod|2|infinite|n/a\nlong|8|7-00:00:00|1-12:00:00\n"


def test_partitions():
    assert read_partitions(SINFO) == [
        Partition(name="short", is_default=True, num_nodes=4, most_s=600.0, usual_s=300.0),
        Partition(name="prod", is_default=False, num_nodes=2, most_s=None, usual_s=None),
        Partition(name="long", is_default=False, num_nodes=8, most_s=7 * 86400.0, usual_s=1.5 * 86400.0),
    ]


def test_a_job_without_a_limit_gets_the_most_where_no_other_is_usual():
    assert read_partitions("a|1|2:00:00|n/a\n")[0].usual_s == 7200.0


@pytest.mark.parametrize(
    ("text", "seconds"), [("9:55", 595.0), ("1:00:00", 3600.0), ("2-00:00:01", 172801.0), ("UNLIMITED", None)]
)
def test_limits(text, seconds):
    assert read_limit_s(text) == seconds


def test_the_partition_that_is_named_and_the_default():
    partitions = read_partitions(SINFO)

    assert choose_partition(partitions, "long").name == "long"
    assert choose_partition(partitions, "").name == "short"


def test_an_unknown_partition_lists_those_there_are():
    with pytest.raises(ClusterError, match=r"no partition 'gpu'.*short \(4 nodes\), prod \(2 nodes\), long"):
        choose_partition(read_partitions(SINFO), "gpu")
    with pytest.raises(ClusterError, match=r"no default partition.*prod \(2 nodes\)"):
        choose_partition(read_partitions("prod|2|infinite|n/a\n"), "")


def test_jobs():
    jobs = read_jobs(
        "7|PENDING|Resources|2026-11-26T14:05:00|\n8|RUNNING|None|2026-11-26T13:00:00|n[0-1]\n"
        "9|PENDING|None|N/A|\n10|COMPLETING|None|N/A|n2\n11|PREEMPTED|None|N/A|n3\n12|CONFIGURING|None|N/A|n4\n"
    )

    assert {number: job.stage for number, job in jobs.items()} == {
        "7": "waiting",
        "8": "running",
        "9": "waiting",
        "10": "ended",
        "11": "ended",
        "12": "starting",
    }
    assert jobs["7"].why_it_waits == "Resources, expected to start at 2026-11-26T14:05:00"
    assert jobs["9"].why_it_waits == ""
    assert jobs["8"].nodes == "n[0-1]"
    assert [jobs[number].is_over for number in ("8", "10", "11")] == [False, False, True]


@pytest.mark.parametrize(
    ("details", "told"),
    [
        ("JobId=1 JobState=COMPLETED Reason=None ExitCode=0:0", "ended as COMPLETED"),
        ("JobState=FAILED Reason=NonZeroExitCode ExitCode=1:0", "ended as FAILED: exit code 1"),
        ("JobState=FAILED Reason=RaisedSignal:9(Killed) ExitCode=0:9", "signal 9, RaisedSignal:9(Killed)"),
        ("JobState=FAILED Reason=NonZeroExitCode ExitCode=127:0", "exit code 127 (a program is not there"),
        ("JobState=FAILED Reason=NonZeroExitCode ExitCode=1:0 PreemptTime=None", "ended as FAILED: exit code 1"),
        ("JobState=COMPLETED ExitCode=0:0 PreemptTime=2026-11-26T01:31:30", "ended as PREEMPTED: a job that goes"),
        ("JobState=PREEMPTED Reason=None ExitCode=0:15", "ended as PREEMPTED: a job that goes before it"),
        ("JobState=TIMEOUT Reason=TimeLimit ExitCode=0:0", "ended as TIMEOUT: its time limit is over"),
    ],
)
def test_how_a_job_ended(details, told):
    assert told in how_it_ended(details)


def test_variables_of_a_job_that_we_are_in_are_no_options_of_ours():
    kept = outside_of_jobs({"PATH": "/bin", "SLURM_CONF": "/etc/s", "SLURM_JOB_ID": "7", "SLURM_NTASKS": "3"})

    assert kept == {"PATH": "/bin", "SLURM_CONF": "/etc/s"}


def test_a_machine_without_slurm():
    with pytest.raises(ClusterError, match=r"no sinfo-of-nobody on this machine.*login node"):
        ask(["sinfo-of-nobody"])


def test_slurm_is_quoted_where_it_refuses(tmp_path):
    program = tmp_path / "sbatch"
    program.write_text("#!/bin/sh\necho 'sbatch: error: Invalid account' >&2\nexit 1\n")
    program.chmod(stat.S_IRWXU)

    with pytest.raises(ClusterError, match="Slurm refuses: sbatch: error: Invalid account"):
        ask([str(program)])


def test_a_program_gets_its_input_and_variables(monkeypatch):
    monkeypatch.setitem(os.environ, "SLURM_JOB_ID", "7")
    code = "import os, sys; print(sys.stdin.read(), os.environ['NFOLD_TOKEN'], os.environ.get('SLURM_JOB_ID'))"

    told = ask([sys.executable, "-SEc", code], given="text", environment={"NFOLD_TOKEN": "secret"})

    assert told == "text secret None\n"
