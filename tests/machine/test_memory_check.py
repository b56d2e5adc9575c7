"""How many processes this machine has memory for, and what is said of more."""

import pytest

from nfold.core.text.cluster_file import parse_cluster
from nfold.errors import ClusterError
from nfold.machine import memory_check


@pytest.fixture
def free(monkeypatch, tmp_path):
    """Let the kernel say that so much memory is free."""

    def say(num_bytes: int) -> None:
        (tmp_path / "meminfo").write_text(f"MemTotal:  99999999 kB\nMemAvailable:  {num_bytes >> 10} kB\n")
        monkeypatch.setattr(memory_check, "_MEMINFO", tmp_path / "meminfo")
        monkeypatch.setattr(memory_check, "unused_memory", lambda: None)

    return say


def nodes(**fields):
    lines = "".join(f"{key} = {value}\n" for key, value in fields.items())
    return parse_cluster(f'[[node]]\nname = "pi"\n{lines}', "c.toml")


def test_as_many_as_fit_may_start(free):
    free(4 * 350_000_000 + 1024)
    memory_check.check_machine_memory("4 ranks", 4, 350_000_000)
    with pytest.raises(ClusterError):
        memory_check.check_machine_memory("5 ranks", 5, 350_000_000)


def test_a_container_may_have_less_than_the_machine(free, monkeypatch):
    free(20 << 30)
    monkeypatch.setattr(memory_check, "unused_memory", lambda: 1_000_000_000)
    with pytest.raises(ClusterError, match="At most 2 would fit"):
        memory_check.check_machine_memory("4 ranks", 4, 350_000_000)


def test_more_are_refused_with_numbers(free):
    free(20 << 30)
    with pytest.raises(ClusterError) as refused:
        memory_check.check_machine_memory("500 ranks", 500, 350_000_000)
    assert str(refused.value) == (
        "500 ranks need about 163.0 GiB to start (350 MB each), and this machine has 20.0 GiB free. "
        "At most 61 would fit: start fewer, or free memory."
    )


def test_the_nodes_of_an_emulated_cluster_share_the_machine(free):
    four = nodes(count=4)
    names = [node.name for node in four.nodes]
    free(1_400_001_024)
    memory_check.check_cluster_memory(four, 350_000_000, names)
    free(1 << 30)
    with pytest.raises(ClusterError, match=r"4 processes on 4 nodes need about 1\.3 GiB .*350 MB each.* 1\.0 GiB free"):
        memory_check.check_cluster_memory(four, 350_000_000, names)


def test_a_node_too_small_for_its_processes_is_refused(free):
    free(1 << 40)
    with pytest.raises(ClusterError, match=r"node 'pi' has 500 MB .* 2 processes on it need about 700 MB .* Give it"):
        memory_check.check_cluster_memory(nodes(memory='"500 MB"'), 350_000_000, ["pi", "pi"])


def test_free_memory_is_what_the_kernel_calls_available():
    assert memory_check.available_bytes("MemTotal:  100 kB\nMemAvailable:   60 kB\n") == 60 << 10
