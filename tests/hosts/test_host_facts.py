"""A host is planned with as it is, or as much of it as was granted."""

import argparse

import pytest

from nfold.cli.agent_command import add_parser
from nfold.hosts.host_facts import facts_of_this_host


def test_no_more_is_told_than_was_granted_nor_than_there_is():
    all_of_it = facts_of_this_host("python")
    part = facts_of_this_host("python", 0.5, 1 << 20)
    assert (part.cores, part.memory_bytes) == (0.5, 1 << 20)
    more = facts_of_this_host("python", 1e6, 1 << 60)
    assert more.cores == pytest.approx(all_of_it.cores)
    assert more.memory_bytes == all_of_it.memory_bytes


@pytest.mark.parametrize("text", ["0", "-3", "x", "inf"])
def test_what_is_no_amount_is_refused(text, capsys):
    parser = argparse.ArgumentParser()
    add_parser(parser.add_subparsers())
    with pytest.raises(SystemExit):
        parser.parse_args(["join", "h:1", "--token-file", "f", f"--cores={text}"])
    assert f"argument --cores: '{text}' is no number above 0" in capsys.readouterr().err


def test_cores_that_slurm_granted_are_no_more_than_there_are(monkeypatch):
    monkeypatch.delenv("SLURM_CPUS_ON_NODE", raising=False)
    there = facts_of_this_host("python").cores
    monkeypatch.setenv("SLURM_CPUS_ON_NODE", "1000000")
    assert facts_of_this_host("python").cores == there

    monkeypatch.setenv("SLURM_CPUS_ON_NODE", "1")
    assert facts_of_this_host("python").cores == min(there, 1.0)
