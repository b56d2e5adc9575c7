"""What happens in a run, taken in without a session."""

import re
from dataclasses import replace

import pytest
from coordinated import Job

from nfold.core.residency import PlacedData, PlacedRun
from nfold.core.trace import StepParts
from nfold.program import ProgramSource
from nfold.runtime.control import commands as cmd
from nfold.runtime.control.spool import Spool
from nfold.verbs.options.option_checks import Options
from nfold.verbs.run_folder.files import BEST
from nfold.verbs.run_folder.folder import RunFolder
from nfold.verbs.running.job_recorder import JobRecorder
from nfold.verbs.running.observer import NullObserver, StepInfo

PARTS = StepParts(
    step=0,
    rank=0,
    step_s=0.5,
    input_s=0.0,
    forward_s=0.2,
    backward_s=0.3,
    update_s=0.0,
    communication_s=0.0,
    other_s=0.0,
    sent_bytes=0,
    samples=8,
)
STEP = cmd.StepDone(step=0, epoch=0, loss=1.5, parts=(PARTS,), trace=None)


@pytest.fixture
def folder(tmp_path):
    return RunFolder.create(tmp_path / "run", "")


@pytest.fixture
def recorder(tmp_path, folder):
    """Records a run into a folder."""
    (tmp_path / "script.py").touch()
    options = Options()
    source = ProgramSource.parse(str(tmp_path / "script.py"))
    return JobRecorder(source, options, options.settings(), NullObserver(), folder=folder, clock=lambda: 0.0)


def sent(folder, content):
    """A file of one rank that has come."""
    spool = Spool(folder.path / "sent.partial")
    spool.add(content)
    return spool.end()


def test_who_stops_before_the_first_step_is_told_how_to_go_on_from_an_earlier_one(recorder):
    assert recorder.kept.told(plan_only=False) == "Training had not begun."
    told = replace(recorder.kept, step=7).told(plan_only=False)
    assert re.match(r"Training had not begun\. The checkpoint of step 7 is kept; go on with: nfold train", told)


def test_a_step_is_handed_out_with_its_evaluation_when_all_of_it_is_done(recorder, folder):
    evaluated = cmd.Evaluated(step=1, epoch=0, metrics={"accuracy": 0.25})
    assert [recorder.take(each) for each in (STEP, evaluated)] == [None, None]
    assert folder.history() == [], "lines are written in batches"
    step = recorder.take(cmd.Settled(1))
    assert step == StepInfo(step=1, epoch=1, loss=1.5, step_s=0.5, metrics={"accuracy": 0.25})
    assert [line["metrics"] for line in folder.history()] == [{}, {"accuracy": 0.25}], "the loop may read them"


def test_the_history_is_written_before_a_plan_for_other_ranks(recorder, folder):
    """What ranks tell another command of steps that are not written down is of those who play this plan."""
    job = Job()
    job.until_training()
    planned = job.planned
    for each in (planned, STEP, replace(STEP, step=1), cmd.Replanned(planned.known, planned.plan, 2)):
        recorder.take(each)
    assert [line["step"] for line in folder.history()] == [1, 2]


def test_a_plan_by_which_nobody_trains_yet_is_shown_once_somebody_does(recorder):
    shown, job = [], Job()
    recorder._observer.planned = lambda planned, folder: shown.append(planned.first_step)
    job.until_training()
    planned = job.planned
    for each in (planned, STEP, cmd.Replanned(planned.known, planned.plan, 1, num_lacking=1)):
        recorder.take(each)
    assert shown == [0]
    for step in (1, 2):
        recorder.take(replace(STEP, step=step))
    assert shown == [0, 1]


def test_where_data_live_is_written_at_once_where_the_checkpoint_is_of_that_step(recorder, folder, monkeypatch):
    """Who gave its samples away is let go right then, and the command may be killed before the next plan."""
    saved, job = [], Job()
    monkeypatch.setattr(folder, "save", saved.append)
    moved = PlacedRun(first_step=0, members=(1,), nodes=("pi",), epochs=(), has_moved=True)
    first, placed, later = (
        PlacedData(members=(), key="", sample_bytes=1.0, runs=(run,), plan=None)
        for run in (replace(moved, has_moved=False), moved, replace(moved, first_step=2))
    )
    job.until_training()
    for each in (cmd.Placed(first), job.planned, cmd.Placed(placed)):
        recorder.take(each)
    assert [each for each in saved if isinstance(each, PlacedData)] == [first, placed]
    recorder.take(cmd.Placed(later))
    assert saved[-1] == placed, "a run that goes on does so from an earlier step, before which samples are elsewhere"
    recorder.take(cmd.KeepCheckpoint(2, sent(folder, b"state")))
    recorder.take(cmd.Placed(later))
    assert saved[-1] == later


def test_an_evaluation_of_an_earlier_step_is_not_the_next_ones(recorder):
    for each in (STEP, replace(STEP, step=1), cmd.Evaluated(step=1, epoch=0, metrics={"accuracy": 0.25})):
        recorder.take(each)
    assert recorder.take(cmd.Settled(2)).metrics == {}


def test_a_number_that_json_lacks_is_left_out_of_the_history_alone(recorder, folder):
    for each in (STEP, cmd.Evaluated(step=1, epoch=0, metrics={"perplexity": float("inf")})):
        recorder.take(each)
    assert recorder.take(cmd.Settled(1)).metrics == {"perplexity": float("inf")}
    assert recorder.outcome.metrics == folder.history()[-1]["metrics"] == {"perplexity": None}


def test_a_file_of_a_rank_is_put_in_its_place(recorder, folder):
    recorder.take(cmd.KeepBest(step=4, file=sent(folder, b"weights")))
    assert (folder.path / BEST).read_bytes() == b"weights"


def test_how_a_run_ended_is_known_afterwards(recorder):
    recorder.take(cmd.Finished(interrupted=True, is_time_up=True, is_terminated=True, staleness={"0": 3}))
    assert (recorder.outcome.interrupted, recorder.is_stopped, recorder.is_terminated) == (True, True, True)
    assert recorder.outcome.staleness == {"0": 3}
