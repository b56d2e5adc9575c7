"""Explanations against golden texts."""

import subprocess
import sys

from nfold.view import Look, failure_block, why_text


def test_why(server, golden):
    assert why_text(server, look=Look(width=90)) == golden("why")


def test_why_of_a_run_without_causes_or_ledger(single):
    assert why_text(single, look=Look(width=200)) == (
        "Compute: 2 cores do 91 % of each step.\n\n"
        "single: median step 70.0 ms over 95 steps, 1829 samples/s, 99 % efficient, 0 B sent a step; "
        "predicted 68.0 ms (-3 % of the median).\n"
    )


def test_failure_says_the_first_cause_once_and_counts_the_echoes():
    text = failure_block(
        cause="ValueError: bad image",
        rank=2,
        node="here",
        step=17,
        line="digits.py:40: raise ValueError('bad image')",
        num_echoes=3,
    )
    assert text == (
        "rank 2 on here failed at step 17: ValueError: bad image\n"
        "  digits.py:40: raise ValueError('bad image')\n"
        "  (3 other ranks stopped because of it)\n"
    )


def test_failure_before_the_first_step():
    text = failure_block(cause="killed by signal 9", rank=1, node="here", step=None, num_echoes=1)
    assert text == (
        "rank 1 on here failed before the first step: killed by signal 9\n  (1 other rank stopped because of it)\n"
    )


def test_importing_the_view_loads_neither_rich_nor_torch():
    code = "import sys, nfold.view; print(sorted({'rich', 'torch', 'numpy'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
