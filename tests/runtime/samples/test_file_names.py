"""Nothing that another node sends is written outside of the store."""

import zlib

import pytest

from nfold.errors import InternalError, RunError
from nfold.runtime.samples.file_names import lies_below
from nfold.runtime.samples.journal import IN_A_FILE, Entry, header, journal_of, packed
from nfold.runtime.samples.record import Record
from nfold.runtime.samples.sample_messages import answer_with, head_of, records_in
from nfold.runtime.samples.sample_store import SampleStore

LEADS_OUT = ["../x", "a/../../x", "..", "/etc/x", "a//b", "./a", "a/.", "a/", "a\0b", "a\\b"]


def answered(record):
    answer = answer_with([record], 64)
    return list(records_in(head_of(answer.head), memoryview(answer.body), 7, 2))


@pytest.mark.parametrize("name", LEADS_OUT)
def test_a_name_that_leads_elsewhere_is_not_taken(tmp_path, name):
    assert not lies_below(name)
    with pytest.raises(RunError, match=r"sample 7 came from rank 2 as the file .* does not lie below a folder"):
        answered(Record(b"bytes", name))
    store = SampleStore(tmp_path / "store")
    with pytest.raises(InternalError, match="leads out of"):
        store.add(1, Record(b"bytes", name))
    store.close()
    right, wrong = Entry(1, IN_A_FILE, 1, 2, "a/b.c"), Entry(2, IN_A_FILE, 1, 2, name)
    assert journal_of(header(0) + packed(right) + packed(wrong)).entries == [right]


@pytest.mark.parametrize("name", ["a", "a/b.jpg", "..a/b..", "a b/ä.npy"])
def test_a_name_below_the_folder_is(name):
    assert answered(Record(b"bytes", name)) == [(7, Record(b"bytes", name))]


def test_a_name_that_was_changed_on_its_way_is_noticed():
    answer = answer_with([Record(b"bytes", "a.txt")], 64)
    assert zlib.crc32(b"bytes") not in head_of(answer.head).samples[0]
    with pytest.raises(RunError, match="changed on its way"):
        list(records_in(head_of(answer.head), memoryview(answer.body.replace(b"a.txt", b"b.txt")), 0, 1))
