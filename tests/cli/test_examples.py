"""The examples, as a user runs them: the digits all three ways, the others on tiny files of their own formats."""

import json
import sys
from functools import partial
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "examples"))

from tiny_files import write_cifar10, write_mnist

from nfold.verbs.compare import compare

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_the_demo_learns_the_digits_each_way(nfold, tmp_path, monkeypatch):
    """In threads, and for three of its ten epochs: the rest is for `make demo` to show, and takes half a minute."""
    monkeypatch.setattr("nfold.verbs.demo.compare", partial(compare, debug=True, steps=36))

    result = nfold("demo", "--json", "--out", "demo")

    assert result.code == 0, result.err
    runs = result.document()["runs"]
    assert [run["name"] for run in runs] == ["single", "ring x2", "ps x2"]
    accuracies = [run["report"]["metrics"]["accuracy"] for run in runs]
    assert min(accuracies) >= 0.85, accuracies
    assert (tmp_path / "demo" / "compare.html").is_file()


SMALL_BATCHES = """
import sys
from dataclasses import replace

sys.path.insert(0, {folder!r})
from {name} import program as published


def program():
    return replace(published(), batch_size=5)
"""


@pytest.mark.parametrize(
    ("name", "write"),
    [("mnist", write_mnist), pytest.param("cifar10", write_cifar10, marks=pytest.mark.exhaustive)],
)
def test_an_example_trains_on_files_of_its_format(nfold, tmp_path, monkeypatch, name, write):
    data = tmp_path / "data"
    data.mkdir()
    write(data)
    monkeypatch.setenv("NFOLD_DATA", str(data))
    (tmp_path / "small.py").write_text(SMALL_BATCHES.format(folder=str(EXAMPLES), name=name))

    result = nfold("train", "small.py", "-n", "2", "--strategy", "ring", "--steps", "1", "--debug", "--json")

    assert result.code == 0, result.err
    assert result.document()["sent_bytes_per_step"] == result.document()["predicted"]["sent_bytes_per_step"] > 0


def test_the_cluster_of_the_examples_can_be_planned_for(nfold):
    result = nfold("plan", EXAMPLES / "digits.py", "--cluster", EXAMPLES / "cluster.toml", "--debug", "--json")

    assert result.code == 0, result.err
    plan = json.loads(result.out)
    assert set(plan["nodes"]) <= {"pi-0", "pi-1", "pi-2", "attic"}
    assert plan["predicted"]["step_s"] > 0
