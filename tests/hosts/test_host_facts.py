"""What an agent tells of its host."""

from nfold.hosts.host_facts import facts_of_this_host


def test_cores_that_slurm_granted_are_no_more_than_there_are(monkeypatch):
    monkeypatch.delenv("SLURM_CPUS_ON_NODE", raising=False)
    there = facts_of_this_host("python").cores
    monkeypatch.setenv("SLURM_CPUS_ON_NODE", "1000000")
    assert facts_of_this_host("python").cores == there

    monkeypatch.setenv("SLURM_CPUS_ON_NODE", "1")
    assert facts_of_this_host("python").cores == min(there, 1.0)
