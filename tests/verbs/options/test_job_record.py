"""What is written down of a run to go on with it, and whether what another nfold has written can still be read."""

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from nfold.core import codec
from nfold.planning.residency.epoch_steps import EpochSteps
from nfold.program import ProgramSource
from nfold.verbs.options.job_record import JobRecord, record_of, resume_command
from nfold.verbs.options.option_checks import Options

EARLIER = {
    "schema": "nfold.JobRecord/1",
    **{"source": "/home/me/mine.py:program", "workers": 2, "servers": 1, "strategy": "ps", "steps": 9, "seed": None},
    **{"device": "auto", "checkpoint_every": 3, "evaluate": True, "total_steps": 9, "steps_per_epoch": 4},
    **{"emulated": None, "staleness": None, "staleness_aware": False, "recipe": None, "keep": "best:accuracy"},
    **{"has_checkpoint": True, "unkept": ""},
}


def test_a_record_of_an_earlier_version_is_read_whole():
    record = codec.loads(JobRecord, json.dumps(EARLIER))
    added = {
        "nodes": None,
        "listen": None,
        "waits": "",
        "on": None,
        "tls": False,
        "exact": False,
        "transport": "tcp",
        "env": None,
        "place": None,
        "tensorboard": None,
    }
    assert codec.encode(record) == {**EARLIER, **added}


@pytest.mark.parametrize("gone", ["workers", "source", "total_steps"])
def test_a_record_that_lacks_what_no_default_can_say_is_refused(gone):
    with pytest.raises(codec.CodecError, match=f"the field '{gone}' is missing"):
        codec.decode(JobRecord, {key: value for key, value in EARLIER.items() if key != gone})


def recorded(options: Options, workers: int, servers: int, tmp_path: Any) -> JobRecord:
    """The record of a run whose plan has so many ranks by now."""
    script = tmp_path / "script.py"
    script.touch()
    plan = SimpleNamespace(workers=workers, servers=servers)
    planned: Any = SimpleNamespace(plan=plan, total_steps=9, epochs=EpochSteps.even(3), recipe=None)
    return record_of(ProgramSource.parse(str(script)), options, planned, has_checkpoint=True, unkept="")


def test_a_run_that_others_have_joined_goes_on_with_all_of_them(tmp_path):
    grown = recorded(Options(workers=2), 3, 0, tmp_path)
    shrunk = recorded(Options(workers=2), 1, 0, tmp_path)
    assert [grown.workers, shrunk.workers] == [3, 2]


@pytest.mark.parametrize(("on", "begins"), [("mpi", "mpirun -np 2 nfold train"), ("local", "nfold train")])
def test_what_mpi_has_started_mpi_starts_again(on, begins, tmp_path):
    record = replace(recorded(Options(workers=2), 2, 0, tmp_path), on=on)
    assert resume_command(tmp_path, record) == f"{begins} --resume {tmp_path}"
    assert resume_command(tmp_path, None) == f"nfold train --resume {tmp_path}"


@pytest.mark.parametrize(
    ("asked", "flags"),
    [
        ({"on": "local"}, "--nodes 1:4"),
        (
            {"listen": "n1:7000", "protect": 7, "hosts_last": "3h", "hosts_within": 33, "hold_for": "30s"},
            "--nodes 1:4 --listen n1:7000 --protect 7 --hosts-last 10800 --hosts-within 33 --hold-for 30s",
        ),
    ],
)
def test_hosts_that_came_and_went_come_and_go_again(asked, flags, tmp_path):
    record = recorded(Options(nodes="1:4", **asked), 3, 0, tmp_path)
    assert resume_command(tmp_path, record) == f"nfold train --resume {tmp_path} {flags}"
