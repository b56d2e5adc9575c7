"""Which steps' weights are averaged, and what no such averages are."""

import pytest

from nfold.core import codec
from nfold.core.options.averages import Averages, averaged, check_averages
from nfold.errors import ProgramError


@pytest.mark.parametrize(
    ("averages", "taken"),
    [
        (Averages(), [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]),
        (Averages(every=3), [3, 6, 9]),
        (Averages(start_step=5), [6, 7, 8, 9, 10]),
        (Averages(start_step=5, every=2), [7, 9]),
        (Averages(start_epoch=1, every=2), [6, 8, 10]),
        (Averages(every="epoch"), [4, 8]),
        (Averages(every="epoch", start_epoch=1), [8]),
        (Averages(every="epoch", start_step=5), [8]),
    ],
)
def test_a_step_is_taken_by_its_number_alone(averages, taken):
    assert [step for step in range(1, 11) if averages.is_due(step, 4)] == taken
    counts = [averages.count(step, 4) for step in range(11)]
    assert counts == [sum(each <= step for each in taken) for step in range(11)]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"kind": "mean"}, "kind='mean'"),
        ({"decay": 1.5}, r"decay=1\.5\): it must be a number from 0 to 1"),
        ({"decay": True}, "decay=True"),
        ({"decay": float("nan")}, "decay=nan"),
        ({"kind": "swa", "decay": 0.9}, "a mean has no decay"),
        ({"every": 0}, r"every=0\): it must be a whole number of at least 1 or 'epoch'"),
        ({"every": "epochs"}, "every='epochs'"),
        ({"start_step": -1}, "start_step=-1"),
        ({"start_step": 3, "start_epoch": 1}, "says twice when averaging begins"),
        ({"use_buffers": "yes"}, "use_buffers='yes'"),
    ],
)
def test_what_makes_no_sense_is_refused(fields, said):
    with pytest.raises(ProgramError, match=said):
        Averages(**fields)


@pytest.mark.parametrize(
    ("averages", "text"),
    [
        (Averages(), "Averages()"),
        (Averages(decay=0.9, every="epoch"), "Averages(decay=0.9, every='epoch')"),
        (
            Averages(kind="swa", start_epoch=3, use_buffers=True),
            "Averages(kind='swa', start_epoch=3, use_buffers=True)",
        ),
    ],
)
def test_it_is_told_as_it_is_written_and_goes_through_json(averages, text):
    assert str(averages) == text
    assert codec.loads(Averages, codec.dumps(averages)) == averages


def test_what_is_no_averages_is_refused_with_what_to_write():
    check_averages(None, ())
    check_averages(Averages(), ("accuracy",))
    for wrong in (0.999, "ema", dict, lambda model: model):
        with pytest.raises(ProgramError, match=r"averages=nfold\.Averages\(decay=0\.999\)"):
            check_averages(wrong, ())


def test_a_metric_may_not_have_the_name_of_an_averaged_one():
    check_averages(None, (averaged("f1"),))
    check_averages(Averages(), ("accuracy", "running_averaged_loss"))
    with pytest.raises(ProgramError, match=r"has 'averaged_f1', .* without 'averaged_' before it"):
        check_averages(Averages(), ("accuracy", averaged("f1")))
