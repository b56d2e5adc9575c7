"""Times that people give: with a unit or in seconds, and never guessed."""

import pytest

from nfold.core.text.durations import duration_s
from nfold.errors import PlanError


@pytest.mark.parametrize(
    ("given", "seconds"),
    [("90", 90), (90, 90), (0.5, 0.5), ("30m", 1800), ("3h", 10800), ("1.5d", 129600), (" 2 s ", 2), (".5m", 30)],
)
def test_times_are_read(given, seconds):
    assert duration_s(given, "--stop-after") == seconds


@pytest.mark.parametrize("given", ["", "h", "3x", "3 h 5", "-5", "0", "0h", "nan", "inf", "1e3", "3H", True, None, [3]])
def test_what_is_no_time_is_named(given):
    with pytest.raises(PlanError, match=r"--stop-after .*: it must be a time of more than 0, .* as in 90, 30m, 3h"):
        duration_s(given, "--stop-after")
