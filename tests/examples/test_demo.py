"""The program of `nfold demo` is where it is looked for, in the source tree and in a wheel."""

import tomllib
from pathlib import Path

import pytest

from nfold.errors import InternalError
from nfold.verbs import demo
from nfold.verbs.demo import digits_script

ROOT = Path(__file__).parents[2]


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """A package as a wheel lays it out, but for what lies outside of src/nfold."""
    package = tmp_path / "site-packages" / "nfold"
    package.mkdir(parents=True)
    monkeypatch.setattr(demo, "__file__", str(package / "verbs" / "demo.py"))
    return package


def test_the_source_tree_has_it():
    assert digits_script() == ROOT / "examples" / "digits.py"


def test_a_wheel_has_it_where_it_is_looked_for(installed):
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    for source, target in settings["force-include"].items():
        place = installed.parent / target
        place.parent.mkdir(exist_ok=True)
        place.write_bytes((ROOT / source).read_bytes())
    assert digits_script() == installed / "examples" / "digits.py"
    assert "def program() -> nfold.Program:" in digits_script().read_text()


def test_an_installation_without_it_is_an_error_of_ours(installed):
    with pytest.raises(InternalError, match=r"digits\.py is missing"):
        digits_script()
