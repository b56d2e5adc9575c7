"""Whether what another nfold has written of a run can still be read."""

import json

import pytest

from nfold.core import codec
from nfold.verbs.options.job_record import JobRecord

EARLIER = {
    "schema": "nfold.JobRecord/1",
    **{"source": "/home/me/mine.py:program", "workers": 2, "servers": 1, "strategy": "ps", "steps": 9, "seed": None},
    **{"device": "auto", "checkpoint_every": 3, "evaluate": True, "total_steps": 9, "steps_per_epoch": 4},
    **{"emulated": None, "staleness": None, "staleness_aware": False, "recipe": None, "keep": "best:accuracy"},
    **{"has_checkpoint": True, "unkept": ""},
}


def test_a_record_of_an_earlier_version_is_read_whole():
    record = codec.loads(JobRecord, json.dumps(EARLIER))
    assert codec.encode(record) == EARLIER


@pytest.mark.parametrize("gone", ["workers", "source", "total_steps"])
def test_a_record_that_lacks_what_no_default_can_say_is_refused(gone):
    with pytest.raises(codec.CodecError, match=f"the field '{gone}' is missing"):
        codec.decode(JobRecord, {key: value for key, value in EARLIER.items() if key != gone})
