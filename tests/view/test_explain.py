"""Explanations against golden texts."""

import subprocess
import sys
from dataclasses import replace
from textwrap import wrap

import pytest

from nfold.core.report import Gain, ReductionSplit
from nfold.view import Look, brief_text, why_text
from nfold.view.explain import MOST_LINES


def test_why(server, golden):
    assert why_text(server, look=Look(width=90)) == golden("why")


def test_a_limit_beside_another_strategy_is_that_of_the_run(server):
    faster = Gain(change="`--strategy pipeline`", speedup=19.0)
    verdict = replace(server.verdict, gains=(faster, *server.verdict.gains))
    assert "\n  With ps, more than 4 workers would gain less than 2 %.\n" in why_text(replace(server, verdict=verdict))


def test_the_heaviest_buckets_are_shown_with_what_they_waited_for(server):
    splits = [
        ReductionSplit(reduction=f"b{index}", queue_s=0.001, transfer_s=0.02, peer_wait_s=0.003, sent_bytes=1 << 20)
        for index in range(7)
    ]
    text = why_text(replace(server, reductions=tuple(splits)))
    assert "Gradients summed, mean step, mean rank, hidden or not (the heaviest 5 of 7):\n" in text
    assert text.count("    1.00 ms    20.0 ms    3.00 ms   1.00 MiB\n") == 5
    assert "(the heaviest" not in why_text(replace(server, reductions=tuple(splits[:2])))
    assert "Gradients summed" not in why_text(server), "nothing was measured"


def test_changes_of_who_trains_are_told_with_what_they_cost(server, events):
    text = why_text(replace(server, events=events))
    assert (
        "n1 has joined: 2 ranks train from step 10 on, after a pause of 80.0 ms\n            joined by hand; 2.50"
        in text
    )
    assert "            was killed by signal 9 (SIGKILL); 128 samples at stake\n" in text


def test_why_of_a_run_without_causes_or_ledger(single):
    assert why_text(single, look=Look(width=200)) == (
        "Compute: 2 cores do 91 % of each step.\n\n"
        "single: median step 70.0 ms over 95 steps, 1829 samples/s, 99 % efficient, 0 B sent a step; "
        "predicted 68.0 ms (-3 % of the median).\n\n"
        "Learnt: final loss 0.312, accuracy 0.973.\n"
    )


def test_what_was_learnt_is_left_out_where_nothing_is_known_and_may_be_no_number(single):
    assert "Learnt" not in why_text(replace(single, final_loss=None, metrics={}))
    assert "\nLearnt: accuracy nan.\n" in why_text(replace(single, final_loss=None, metrics={"accuracy": None}))


def test_a_run_of_few_steps_says_so_instead_of_an_efficiency(single):
    text = why_text(replace(single, num_steps=4, efficiency=1.4), look=Look(width=200))
    assert "over 4 steps, 1829 samples/s, too few steps to say how efficient, 0 B sent a step" in text
    assert "140 %" not in text


def test_a_cause_that_wins_more_than_its_share_says_why(server):
    compute, waited, _ = server.causes
    both = (replace(compute, share=0.5, what_if_speedup=2.0), replace(waited, share=0.2, what_if_speedup=1.5))
    text = " ".join(why_text(replace(server, causes=both)).split())
    assert "without it a step would be 2.00x as fast" in text
    assert "without it and what waits for it a step would be 1.50x as fast" in text


def test_importing_the_view_loads_neither_rich_nor_torch():
    code = "import sys, nfold.view; print(sorted({'rich', 'torch', 'numpy'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("num_words", [1, 60, 120])
def test_a_run_ends_with_25_lines_at_most_and_with_its_verdict_and_last_lines_whole(server, num_words):
    """At 80 columns, where a long line is several."""
    path = "run: " + "R" * 150
    causes = tuple(replace(cause, evidence="why " * num_words) for cause in server.causes * 4)
    verdict = replace(server.verdict, text="held back " * num_words)
    text = brief_text(replace(server, causes=causes, verdict=verdict), [path, "more: nfold why R"])
    assert sum(len(wrap(line, 80)) or 1 for line in text.splitlines()) <= MOST_LINES
    assert text.count("held") == num_words
    assert text.endswith(f"{path}\nmore: nfold why R\n")


def test_what_a_run_ends_with_is_said_by_why_too(server):
    brief = brief_text(server, [])
    whole = why_text(server, look=Look(width=80))
    assert all(line in whole for line in brief.splitlines())
    assert len(brief.splitlines()) < len(whole.splitlines())
