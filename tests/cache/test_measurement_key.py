"""A key differs when any part of it does, and only then."""

import pytest

from nfold.cache.measurement_key import code_of_nfold, key_of, this_machine

PARTS = {
    "source": "/a/train.py:program",
    "files": {"/a/train.py": "1f", "/a/helper.py": "2e"},
    "variables": {"WIDTH": None},
    "told": {"weights": {"0.weight": 7}, "first_pass": {"samples": 3, "outputs": [{"norm": 0.1}]}},
    "chunk_sizes": (2, 4),
    "thread_counts": (2, 1),
}
OTHERS = {
    "source": "/a/train.py:other",
    "files": {"/a/train.py": "1f", "/a/helper.py": "3e"},
    "variables": {"WIDTH": "None"},
    "told": {"weights": {"0.weight": 7}, "first_pass": {"samples": 3, "outputs": [{"norm": 0.1 + 1e-16}]}},
    "chunk_sizes": (2,),
    "thread_counts": (1,),
}


@pytest.mark.parametrize("part", PARTS)
def test_each_part_changes_it(part):
    assert key_of(PARTS) != key_of({**PARTS, part: OTHERS[part]})
    assert key_of(PARTS) != key_of({name: value for name, value in PARTS.items() if name != part})


def test_neither_order_nor_place_in_memory_does():
    assert key_of(dict(reversed(PARTS.items()))) == key_of(PARTS)
    assert key_of({"program": object()}) == key_of({"program": object()})


def test_code_of_nfold(tmp_path):
    (tmp_path / "runtime").mkdir()
    (tmp_path / "runtime" / "a.py").write_text("1")
    first = code_of_nfold(tmp_path)
    assert code_of_nfold(tmp_path) == first
    (tmp_path / "runtime" / "a.py").write_text("10")
    second = code_of_nfold(tmp_path)
    (tmp_path / "b.py").write_text("")
    assert len({first, second, code_of_nfold(tmp_path)}) == 3


def test_machines_differ_by_their_processors(tmp_path):
    for name in ("Xeon", "EPYC"):
        (tmp_path / name).write_text(
            f"processor\t: 0\nmodel name\t: {name}\nflags\t\t: fpu\ncpu MHz\t: 1\n\nprocessor\t: 1\n"
        )
    one, other = (this_machine(tmp_path / name) for name in ("Xeon", "EPYC"))
    assert one["processor"] == ["model name\t: Xeon", "flags\t\t: fpu"]
    assert one != other
    assert this_machine(tmp_path / "none")["processor"] != one["processor"]


def test_machines_differ_by_the_folder_that_paths_begin_at(tmp_path, monkeypatch):
    here = this_machine()
    monkeypatch.chdir(tmp_path)
    assert this_machine() != here
