"""nfold place, as typed."""

import json

import pytest

from nfold.core import codec
from nfold.core.residency import ResidencyPlan

CLUSTER = """
[[node]]
name = "pi"
samples = 3000
sample_bytes = 1000
samples_per_s = 10
uplink = "8 Mbit/s"

[[node]]
name = "desk"
samples_per_s = 40
uplink = "8 Mbit/s"
"""


@pytest.fixture(autouse=True)
def file(tmp_path):
    (tmp_path / "c.toml").write_text(CLUSTER)
    (tmp_path / "pinned.toml").write_text(CLUSTER.replace("samples = 3000", "samples = 3000\npinned = true"))


def test_table_and_picture(nfold, tmp_path):
    result = nfold("place", "c.toml", "--epochs", "2", "--picture", "plan.html")
    assert result.code == 0, result.err
    assert "| pi   | 3000" in result.out
    assert "Move 2.29 MiB (2400 samples) from pi to desk: takes 2.40 s, saves 8.00 min." in result.out
    assert (tmp_path / "plan.html").exists()


def test_a_picture_that_cannot_be_written_does_not_lose_the_plan(nfold, tmp_path):
    (tmp_path / "plan.html").mkdir()
    result = nfold("place", "c.toml", "--picture", "plan.html")
    assert result.code == 2
    assert "| pi   | 3000" in result.out
    assert "cannot write the picture plan.html" in result.err


def test_json(nfold):
    result = nfold("place", "c.toml", "--json", "--method", "waterfill")
    plan = codec.decode(ResidencyPlan, json.loads(result.out))
    assert [node.holds for node in plan.nodes] == [600, 2400]


@pytest.mark.parametrize(
    ("arguments", "fragments"),
    [
        (["place", "nope.toml"], ["cannot read the cluster file nope.toml"]),
        (["place", "pinned.toml", "--without", "pi"], ["pi is excluded and pins 3000 samples"]),
        (["place", "c.toml", "--without", "pie"], ["no node is called 'pie'", "pi, desk"]),
        (["place", "c.toml", "--picture", "plan.png"], ["plan.png: its name must end in .html or .svg"]),
        (["place", "c.toml", "--workers", "2"], ["there is no flag --workers"]),
        (["place", "c.toml", "--gradient", "1"], ["'1' has no unit"]),
    ],
    ids=" ".join,
)
def test_what_is_refused(nfold, arguments, fragments):
    nfold(*arguments).check_explained(*fragments)
