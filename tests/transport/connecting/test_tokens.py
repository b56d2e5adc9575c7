"""The job's token, and what a file that should hold it may hold instead."""

from pathlib import Path

import pytest

from nfold.errors import ClusterError
from nfold.transport.connecting import job_token
from nfold.transport.connecting.job_token import key_and_certificate, new_token, tell_encryption
from nfold.transport.connecting.token_file import read_token, write_token


def test_a_token_is_one_line_and_no_two_jobs_have_the_same() -> None:
    tokens = [new_token(encrypted=encrypted) for encrypted in (False, False, True, True)]
    assert len(set(tokens)) == 4
    assert all(token.isascii() and token.isprintable() and " " not in token for token in tokens)
    plain, _, secret, other = map(key_and_certificate, tokens)
    assert plain is None
    assert secret is not None
    assert other is not None
    assert secret[0].startswith("-----BEGIN PRIVATE KEY-----")
    assert secret[1].startswith("-----BEGIN CERTIFICATE-----")
    assert not set(secret) & set(other)


@pytest.mark.parametrize("cut", [5, 30, 40, 200, -8])
def test_a_token_that_is_cut_off_is_refused(cut: int) -> None:
    with pytest.raises(ClusterError, match="cut off or garbled: copy it again"):
        key_and_certificate(new_token(encrypted=True)[:cut])


def test_without_openssl_there_is_no_certificate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ClusterError, match=r"--tls needs the openssl program.*Install it"):
        new_token(encrypted=True)
    assert new_token(encrypted=False)


def test_what_openssl_complains_of_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_token, "_MAKE_CERTIFICATE", ("openssl", "req", "-nonsense"))
    with pytest.raises(ClusterError, match=r"could not make the job's certificate \(exit code 1\): .*nonsense"):
        new_token(encrypted=True)


def test_a_run_says_whether_others_can_read() -> None:
    assert "is encrypted" in tell_encryption(encrypted=True)
    assert "is not encrypted" in tell_encryption(encrypted=False)


def test_a_token_with_a_certificate_is_written_and_read_again(tmp_path: Path) -> None:
    path, token = tmp_path / "token", new_token(encrypted=True)
    write_token(path, token)
    assert read_token(str(path)) == token


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"\x7fELF\x02\x01\xff", "holds something else than a job's token"),
        (b"tls:0f3a:LS0t", "the job's token is cut off or garbled"),
    ],
)
def test_a_file_that_holds_something_else_is_refused(tmp_path: Path, data: bytes, complaint: str) -> None:
    path = tmp_path / "token"
    path.write_bytes(data)
    path.chmod(0o600)
    with pytest.raises(ClusterError, match=complaint):
        read_token(str(path))
