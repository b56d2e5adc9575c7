"""Where the job's token may lie."""

import io

import pytest

from nfold.errors import ClusterError
from nfold.transport.connecting.token_file import read_token, write_token


def test_what_is_written_is_read_by_its_owner_only(tmp_path):
    write_token(tmp_path / "token", "abc")

    assert read_token(str(tmp_path / "token")) == "abc"
    assert (tmp_path / "token").stat().st_mode & 0o777 == 0o600


def test_a_file_for_all_to_read_is_refused(tmp_path):
    write_token(tmp_path / "token", "abc")
    (tmp_path / "token").chmod(0o644)

    with pytest.raises(ClusterError, match=r"mode 644.*chmod 600"):
        read_token(str(tmp_path / "token"))


@pytest.mark.parametrize(("text", "told"), [("\n", "is empty"), (None, "No such file")])
def test_no_token(tmp_path, text, told):
    if text is not None:
        write_token(tmp_path / "token", "")

    with pytest.raises(ClusterError, match=told):
        read_token(str(tmp_path / "token"))


def test_standard_input_gives_its_first_line(monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("abc\nmore"))

    assert read_token("-") == "abc"
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    with pytest.raises(ClusterError, match="no token came"):
        read_token("-")
