"""Files that come in pieces."""

import errno

import pytest

from nfold.runtime.control.spool import Spool, Spools


def test_a_file_comes_in_pieces_under_another_name(tmp_path):
    spools = Spools(tmp_path)
    spools.add(0, "checkpoint", b"one ")
    spools.add(1, "model", b"other")
    spools.add(0, "checkpoint", b"two")
    first, second = spools.end(0), spools.end(1)
    assert (first.path.read_bytes(), first.num_bytes, first.error) == (b"one two", 7, None)
    assert second.path.read_bytes() == b"other"
    assert {path.suffix for path in tmp_path.iterdir()} == {".partial"}
    assert spools.end(0) is None, "it has sent one file"


def test_two_files_of_one_rank_are_two(tmp_path):
    spools = Spools(tmp_path)
    for text in (b"a", b"b"):
        spools.add(0, "checkpoint", text)
        found = spools.end(0)
        assert found.path.read_bytes() == text
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.skipif(not hasattr(__import__("os"), "O_DIRECT"), reason="needs Linux: /dev/full")
def test_a_full_disk_is_told_at_the_end_and_takes_the_rest_without_a_word(tmp_path):
    (tmp_path / "full").symlink_to("/dev/full")
    spool = Spool(tmp_path / "full")
    for _ in range(3):
        spool.add(b"x" * 100_000)
    found = spool.end()
    assert (found.error.errno, found.num_bytes) == (errno.ENOSPC, 300_000)
    assert not list(tmp_path.iterdir()), "half a file is of no use"


def test_a_folder_that_is_gone(tmp_path):
    spool = Spool(tmp_path / "no" / "file")
    spool.add(b"x")
    assert isinstance(spool.end().error, FileNotFoundError)


def test_what_a_rank_sends_no_more_of_is_no_part_of_its_next_file(tmp_path):
    spools = Spools(tmp_path)
    spools.add(0, "checkpoint", b"half of o")
    spools.drop(0)
    spools.drop(1)
    spools.add(0, "checkpoint", b"another")
    arrived = spools.end(0)
    assert arrived is not None
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"another"]


def test_after_the_end_no_file_is_begun(tmp_path):
    spools = Spools(tmp_path)
    spools.add(0, "model", b"half")
    spools.close()
    spools.add(1, "model", b"late")
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"half"], "closed, so that it can be removed"


def test_a_file_is_put_in_the_place_of_another(tmp_path):
    (tmp_path / "kept").write_bytes(b"old")
    spool = Spool(tmp_path / "new.partial")
    spool.add(b"new")
    spool.end().put(tmp_path / "kept")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"kept": b"new"}


def test_a_file_that_cannot_be_put_there_does_not_stay(tmp_path):
    (tmp_path / "kept" / "inside").mkdir(parents=True)
    spool = Spool(tmp_path / "new.partial")
    spool.add(b"new")
    with pytest.raises(OSError, match="kept"):
        spool.end().put(tmp_path / "kept")
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


def test_what_comes_after_the_end_of_a_file_is_not_written(tmp_path):
    spool = Spool(tmp_path / "file")
    spool.add(b"in time")
    spool.end()
    spool.add(b" late")
    assert (tmp_path / "file").read_bytes() == b"in time"


def test_nothing_stays_of_a_file_that_is_dropped(tmp_path):
    spool = Spool(tmp_path / "file")
    spool.add(b"half")
    spool.drop()
    assert not list(tmp_path.iterdir())
