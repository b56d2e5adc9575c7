"""Lock files: what is pinned, and what is refused."""

import pytest

from nfold.errors import ProgramError
from nfold.hosts.program_files.lock_file import read_lock

PINNED = """\
# made by hand
--index-url https://example.org/simple
--extra-index-url=https://example.org/cpu
torch==2.13.0+cpu ; python_version >= "3.11"  # the processor's
numpy==2.0.0 \\
    --hash=sha256:aa \\
    --hash=sha256:bb
Jinja2[i18n]===3.1.4
mine @ https://example.org/mine-1.0-py3-none-any.whl
ours @ git+https://example.org/ours.git@0123456789abcdef0123456789abcdef01234567#subdirectory=a
"""
PYLOCK = """\
lock-version = "1.0"
[[packages]]
name = "torch"
version = "2.13.0"
index = "https://example.org/cpu"
marker = "sys_platform == 'linux'"
wheels = [{name = "torch.whl", hashes = {sha256 = "aa"}}, {name = "other.whl", hashes = {sha256 = "bb"}}]
[[packages]]
name = "numpy"
version = "2.0.0"
sdist = {name = "numpy.tar.gz", hashes = {sha256 = "cc"}}
"""


@pytest.fixture
def written(tmp_path):
    def write(text, name="requirements.lock"):
        (tmp_path / name).write_text(text)
        return tmp_path / name

    return write


def test_a_pinned_file_travels_as_it_is(written):
    lock = read_lock(written(PINNED))

    assert (lock.name, lock.text, lock.names_nfold) == ("requirements.lock", PINNED, False)
    assert read_lock(written(PINNED + "nfold==0.1.0\n")).names_nfold


@pytest.mark.parametrize(
    "line",
    [
        "torch",
        "torch>=2.13",
        "torch==2.*",
        "-r more.txt",
        "-e .",
        "-c limits.txt",
        "./wheels/a.whl",
        "a==1 b",
        "a @ file:///home/me/a.whl",
        "a @ git+https://example.org/a.git@main",
        "== 1",
    ],
)
def test_what_is_not_pinned_is_refused(written, line):
    with pytest.raises(ProgramError, match=r"is not pinned, or names a file that does not travel.*pip freeze --all"):
        read_lock(written(f"numpy==2.0.0\n{line}\n"))


def test_pylock_becomes_lines_of_pip(written):
    assert read_lock(written(PYLOCK, "pylock.toml")).text.splitlines() == [
        "--extra-index-url https://example.org/cpu",
        "torch==2.13.0 ; sys_platform == 'linux' --hash=sha256:aa --hash=sha256:bb",
        "numpy==2.0.0 --hash=sha256:cc",
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("packages = 3", "not iterable"),
        ("lock-version =", "Invalid value"),
        ('[[packages]]\nname = "a"\n', "version"),
        ('[[packages]]\nname = "a"\nversion = "1"\ndirectory = {path = "."}\n', "a comes from no index"),
    ],
)
def test_a_pylock_that_cannot_be_followed(written, text, said):
    with pytest.raises(ProgramError, match=f"no pylock.toml that pins all packages of an index: .*{said}"):
        read_lock(written(text, "pylock.toml"))


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(ProgramError, match=r"--env .*none.lock: No such file or directory"):
        read_lock(tmp_path / "none.lock")
