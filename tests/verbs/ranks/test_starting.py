"""What a run says of its traffic before it begins."""

from pathlib import Path

import pytest

from nfold.program import ProgramSource
from nfold.verbs.options.option_checks import Options
from nfold.verbs.ranks.starting import tell_traffic, token_for


@pytest.mark.parametrize(
    ("asked", "told", "has_certificate"),
    [
        ({}, "", False),
        ({"tls": True}, "is encrypted", True),
        ({"on": "local", "nodes": 2}, "is not encrypted", False),
        ({"on": "local", "nodes": 2, "tls": True}, "is encrypted", True),
        ({"debug": True, "tls": True}, "", False),
    ],
    ids=["here", "here, encrypted", "hosts", "hosts, encrypted", "threads"],
)
def test_a_run_says_whether_its_traffic_is_encrypted(
    tmp_path: Path, asked: dict[str, object], told: str, has_certificate: bool
) -> None:
    script = tmp_path / "script.py"
    script.touch()
    source, options = ProgramSource.parse(str(script)), Options(**asked)
    said = tell_traffic(source, options)
    assert (told in said) if told else not said
    assert token_for(source, options).startswith("tls:") == has_certificate
