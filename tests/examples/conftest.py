"""Imports examples the way nfold does, and gives tests a folder for their data."""

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
sys.path.append(str(Path(__file__).parent))


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    """Return a function that imports an example by its name."""
    monkeypatch.syspath_prepend(str(EXAMPLES))

    def load(name: str) -> ModuleType:
        specification = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
        assert specification is not None
        assert specification.loader is not None
        module = importlib.util.module_from_spec(specification)
        monkeypatch.setitem(sys.modules, f"example_{name}", module)
        specification.loader.exec_module(module)
        return module

    return load


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty folder that NFOLD_DATA names."""
    monkeypatch.setenv("NFOLD_DATA", str(tmp_path))
    return tmp_path
