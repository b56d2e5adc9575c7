"""A script's folder, packed here and unpacked elsewhere."""

import os

import pytest

from nfold.core import codec
from nfold.core.run_state import RunState
from nfold.errors import ClusterError, ProgramError
from nfold.hosts.program_files import archive
from nfold.hosts.program_files.archive import pack
from nfold.hosts.program_files.unpacked import ProgramCache


@pytest.fixture
def script(tmp_path):
    folder = tmp_path / "project"
    (folder / "parts").mkdir(parents=True)
    (folder / "train.py").write_text("import parts.net")
    (folder / "parts" / "net.py").write_text("net")
    (folder / "parts" / "run.sh").write_text("echo")
    (folder / "parts" / "run.sh").chmod(0o755)
    return folder / "train.py"


def unpacked(tmp_path, made):
    return ProgramCache(tmp_path / "cache").unpack(made.content, made.digest)


def test_all_of_the_folder_arrives(script, tmp_path):
    folder = unpacked(tmp_path, pack(script))

    assert (folder / "train.py").read_text() == "import parts.net"
    assert (folder / "parts" / "net.py").read_text() == "net"
    assert os.access(folder / "parts" / "run.sh", os.X_OK)


def test_what_a_link_leads_to_arrives_in_its_place(script, tmp_path):
    (tmp_path / "weights.bin").write_text("weights")
    (script.parent / "weights.bin").symlink_to(tmp_path / "weights.bin")

    arrived = unpacked(tmp_path, pack(script)) / "weights.bin"

    assert arrived.read_text() == "weights"
    assert not arrived.is_symlink()


def test_runs_beside_the_script_stay_and_change_no_checksum(script, tmp_path):
    before = pack(script)
    run, other = script.parent / "first-try", script.parent / "states"
    for folder in (run, other):
        folder.mkdir()
        (folder / "log.txt").write_text("hello")
    codec.save(RunState(at=1.0, phase="training"), run / "state.json")
    (script.parent / "state.json.partial").write_text("half")

    assert pack(script).digest != before.digest
    (other / "log.txt").unlink()
    assert pack(script).digest == before.digest


def test_equal_folders_have_equal_checksums_whenever_they_were_written(script, tmp_path):
    first = pack(script)
    os.utime(script, (1, 1))

    assert pack(script).digest == first.digest
    script.write_text("import parts.net  # changed")
    assert pack(script).digest != first.digest


def test_what_is_ignored_stays(script, tmp_path):
    folder = script.parent
    for name in (
        "data/big.bin",
        "runs/1/model",
        ".git/HEAD",
        "parts/old.ckpt",
        "__pycache__/x.pyc",
        "parts/data/in.txt",
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("x")
    (folder / ".nfoldignore").write_text("# not these\n/data/\n*.ckpt\n")

    found = unpacked(tmp_path, pack(script))

    assert sorted(path.relative_to(found).as_posix() for path in found.rglob("*") if path.is_file()) == [
        "parts/data/in.txt",
        "parts/net.py",
        "parts/run.sh",
        "train.py",
    ]


def test_a_large_folder_is_refused_with_what_is_large(script, monkeypatch):
    monkeypatch.setattr(archive, "MOST_BYTES", 1000)
    (script.parent / "photos").mkdir()
    (script.parent / "photos" / "1.jpg").write_bytes(bytes(5000))

    with pytest.raises(ProgramError, match=r"files of 4.91 KiB .* The largest: photos \(4.88 KiB\).*\.nfoldignore"):
        pack(script)


def test_a_program_that_came_before_is_found(script, tmp_path):
    made, cache = pack(script), ProgramCache(tmp_path / "cache")

    assert cache.find(made.digest) is None
    folder = cache.unpack(made.content, made.digest)
    assert cache.find(made.digest) == folder
    assert cache.unpack(made.content, made.digest) == folder
    assert not list((tmp_path / "cache").glob("half-*"))


def test_what_came_broken_is_not_kept(script, tmp_path):
    made, cache = pack(script), ProgramCache(tmp_path / "cache")

    with pytest.raises(ClusterError, match="checksum differs"):
        cache.unpack(made.content[:-1] + b"x", made.digest)
    assert cache.find(made.digest) is None


def test_a_cache_that_cannot_be_written(script, tmp_path):
    (tmp_path / "file").write_text("")
    made = pack(script)

    with pytest.raises(ClusterError, match=r"cannot unpack the program into .*XDG_CACHE_HOME"):
        ProgramCache(tmp_path / "file" / "cache").unpack(made.content, made.digest)
