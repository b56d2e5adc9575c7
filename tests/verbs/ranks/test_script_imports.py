"""What a script imports before anything of the user's can have run."""

import sys

import pytest

from nfold.verbs.ranks.script_imports import library_imports


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", []),
        ('"""Words."""\nfrom __future__ import annotations\nimport json, os.path', ["__future__", "json", "os.path"]),
        ("from concurrent import futures\nimport nfold", ["concurrent", "nfold"]),
        ("import json\nX = 1\nimport os", ["json"]),
        ("import json\nimport own\nimport os", ["json"]),
        ("import json\nimport folder.part\nimport os", ["json"]),
        ("import json, own\nimport os", []),
        ("from . import part", []),
        ("import json\nfrom .part import each", ["json"]),
        ("import no_such_library_anywhere", []),
        ("try:\n    import json\nexcept ImportError:\n    pass", []),
        ("import json\nimport =", []),
    ],
)
def test_it_ends_at_the_first_statement_that_is_no_import_of_a_library(tmp_path, text, found):
    (tmp_path / "own.py").touch()
    (tmp_path / "folder").mkdir()
    script = tmp_path / "script.py"
    script.write_text(text)
    assert [name for name, _ in library_imports(script)] == found


def test_what_is_taken_may_be_a_module(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("from concurrent import futures as f, other")
    assert library_imports(script) == [("concurrent", ("futures", "other"))]


def test_a_file_beside_the_script_takes_the_place_of_a_library(tmp_path):
    (tmp_path / "json.py").touch()
    (tmp_path / "script.py").write_text("import json")
    assert library_imports(tmp_path / "script.py") == []


def test_a_package_without_init_is_a_library_where_all_of_it_is(tmp_path, monkeypatch):
    for folder in ("site-packages", "own"):
        (tmp_path / folder / "spread").mkdir(parents=True)
        monkeypatch.syspath_prepend(tmp_path / folder)
    scripts = tmp_path / "scripts"
    scripts.mkdir()
    (scripts / "script.py").write_text("import spread")

    assert library_imports(scripts / "script.py") == []
    monkeypatch.setattr("sys.path", [each for each in sys.path if each != str(tmp_path / "own")])
    assert library_imports(scripts / "script.py") == [("spread", ())]


def test_a_script_in_a_package_and_one_that_is_gone_have_none(tmp_path):
    assert library_imports(tmp_path / "gone.py") == []
    (tmp_path / "__init__.py").touch()
    (tmp_path / "script.py").write_text("import json")
    assert library_imports(tmp_path / "script.py") == []
