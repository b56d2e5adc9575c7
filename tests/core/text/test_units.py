"""Numbers for people."""

import pytest

from nfold.core.text import units


@pytest.mark.parametrize(
    ("function", "value", "text"),
    [
        (units.seconds, 0.0412, "41.2 ms"),
        (units.seconds, 0, "0 s"),
        (units.seconds, 12.34, "12.3 s"),
        (units.seconds, 5e-7, "0.5 us"),
        (units.size, 0, "0 B"),
        (units.size, 500, "500 B"),
        (units.size, 3072, "3.00 KiB"),
        (units.size, 3_500_000, "3.34 MiB"),
        (units.rate, 1.2e9, "1.20 GB/s"),
        (units.percent, 0.784, "78 %"),
        (units.signed_percent, -0.05, "-5 %"),
        (units.signed_percent, 0.0, "+0 %"),
        (units.clock, 14, "0:14"),
        (units.clock, 3725, "1:02:05"),
        (units.duration, 119, "119 s"),
        (units.duration, 180, "3.00 min"),
        (units.duration, 7560, "2.10 h"),
        (units.duration, 864_000, "10.0 days"),
        (units.figure, 812.4, "812"),
        (units.figure, 0.3123, "0.312"),
        (units.figure, 123_456_789.0, "123456789"),
        (units.figure, 5.7e68, "5.7e+68"),
        (units.figure, float("nan"), "nan"),
    ],
)
def test_units(function, value, text):
    assert function(value) == text


def test_plurals():
    assert units.count(1, "core") == "1 core"
    assert units.count(2.5, "core") == "2.5 cores"
