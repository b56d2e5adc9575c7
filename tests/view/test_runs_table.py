"""The user's runs as a table, and one of them as a screenful."""

from dataclasses import replace

from nfold.core.report import TimeParts
from nfold.core.run_state import LinkState, ListedRun, RankState, RunEvent, RunState
from nfold.view import runs_table, top_text

RUN = ListedRun(
    number=12, folder="/home/me/runs/digits-1", script="/home/me/digits.py:program", host="pi-1", pid=7, started="b:1",
    begun=1000.0, heard=1060.0, strategy="ring", workers=4, nodes=2, step=164, total_steps=400, loss=0.3123,
)  # fmt: skip
STATE = RunState(
    at=1060.0,
    phase="training",
    strategy="ring",
    workers=2,
    servers=1,
    step=164,
    kept_step=160,
    total_steps=400,
    epoch=2,
    num_epochs=4,
    loss=0.3123,
    metrics={"accuracy": 0.91, "f1": None},
    samples_per_s=812.4,
    left_s=75.0,
    parts=TimeParts(compute_s=0.03, exposed_communication_s=0.01, peer_wait_s=0.005, input_s=0.005, update_s=0.0),
    ranks=(
        RankState(
            rank=0, node="pi-1", role="worker", compute_share=0.6, communication_share=0.3, input_share=0.1,
            compute_cores=0.5, communication_cores=0.25, throttled_share=0.0, rss_bytes=300 << 20,
            sent_bytes_per_s=1e6, received_bytes_per_s=2e6,
        ),
        RankState(rank=1, node="pi-2", role="worker"),
        RankState(rank=2, node="pi-2", role="server"),
    ),
    links=(LinkState(node="pi-1", uplink_bytes_per_s=11.75e6, downlink_bytes_per_s=12.5e6, origin="measured"),),
    events=tuple(RunEvent(at=float(index), text=f"event {index}") for index in range(9)),
)  # fmt: skip


def test_runs_are_told_with_where_they_are_how_far_and_what_they_died_of():
    failed = replace(
        RUN, number=3, ending="failed", cause="rank 1 died", ended=1010.0, folder="/elsewhere/x", step=0, total_steps=0,
        loss=None, nodes=0, script="/x/b.py:other", host="n7",
    )  # fmt: skip
    lines = runs_table([RUN, failed], now=1075.0, host="n7", here="/home/me").splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    assert cells == [
        ["run", "state", "step", "loss", "where", "for", "script", "folder"],
        ["12", "running", "164/400 41 %", "0.31", "pi-1, 2 nodes", "1:15", "digits.py", "runs/digits-1"],
        ["3", "failed", "-", "-", "here", "0:10", "b.py:other", "/elsewhere/x"],
    ]
    assert lines[-1] == "3: rank 1 died"


def test_a_screenful_says_how_far_and_where_the_time_goes():
    text = top_text(STATE, RUN, folder="runs/digits-1", now=1061.0)
    head, bar, figures = text.splitlines()[:3]
    assert head == "run 12: runs/digits-1, training, ring with 2 workers and 1 server"
    assert bar == f"[{'#' * 12}{'-' * 18}] 41 %  step 164 of 400, epoch 2 of 4, 1:15 left"
    assert figures == "loss 0.31  accuracy 0.91  f1 -  812 samples/s  checkpoint of step 160"
    assert f"compute{' ' * 16}60 % [{'#' * 18}{'-' * 12}]" in text
    assert "exposed communication  20 % [######" in text
    assert "event 2" not in text
    assert text.index("event 3") < text.index("event 8") < text.index("| rank")
    assert "| 0        | pi-1 |    60 % |     30 % |  0.75 | 300 MiB | 8 Mbit/s | 16 Mbit/s |" in text
    assert "| 2 server | pi-2 |       - |" in text
    assert "| pi-1 | 94 Mbit/s | 100 Mbit/s | measured |" in text


def test_what_changes_of_who_trains_have_cost_is_told(events):
    text = top_text(replace(STATE, ledger=events), RUN, folder="x", now=1061.0)
    assert "What hosts that came and went have cost:\n" in text
    assert "n2 is lost: was killed by signal 9 (SIGKILL); 128 samples at stake\n" in text


def test_more_ranks_than_a_screen_has_room_for_are_counted():
    text = top_text(STATE, RUN, folder="x", now=1061.0, most_ranks=1)
    assert "2 more ranks: --json has all" in text
    assert "pi-2" not in text


def test_a_command_that_says_nothing_any_more_is_told():
    assert "training, ring with 2 workers and 1 server, last heard 0:40 ago" in top_text(
        STATE, RUN, folder="x", now=1100.0
    )
    lost = replace(RUN, ending="lost")
    assert "run 12: x, lost: its process is gone" in top_text(STATE, lost, folder="x", now=1100.0)
    done = replace(STATE, phase="done")
    assert top_text(done, None, folder="x", now=9000.0).splitlines()[0] == "x, done, ring with 2 workers and 1 server"


def test_a_run_that_has_just_begun_is_one_line():
    assert top_text(RunState(at=1.0, phase="starting"), RUN, folder="x", now=1.0) == "run 12: x, starting\n"
