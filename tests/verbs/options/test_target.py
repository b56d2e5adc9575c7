"""What hosts a run may ask for."""

import pytest

from nfold.errors import ClusterError, PlanError
from nfold.verbs.options.option_checks import Options
from nfold.verbs.options.target import Target, read_listen, read_target


@pytest.mark.parametrize(
    ("on", "target"),
    [
        ("ssh:hosts.txt", Target(kind="ssh", where="hosts.txt")),
        ("slurm", Target(kind="slurm")),
        ("slurm:short", Target(kind="slurm", where="short")),
        ("yarn:http://rm:8088", Target(kind="yarn", where="http://rm:8088")),
        ("here", None),
        (None, None),
    ],
)
def test_kinds_of_hosts(on, target):
    assert read_target(on, None) == target


def test_who_only_listens_waits_for_people():
    assert read_target(None, "0.0.0.0:7000") == Target(kind="hand", where="0.0.0.0:7000")
    assert read_target("local", "0.0.0.0:7000") == Target(kind="local")


@pytest.mark.parametrize(
    ("on", "told"),
    [
        ("kubernetes", "no kind of hosts 'kubernetes'.*ssh, slurm, mpi, ray, yarn, local, here"),
        ("ssh", "needs a hosts file"),
        ("yarn:", "needs the ResourceManager"),
        ("mpi:4", "nothing stands behind mpi"),
    ],
)
def test_what_is_no_kind(on, told):
    with pytest.raises(PlanError, match=told):
        read_target(on, None)


@pytest.mark.parametrize(("text", "address"), [("0.0.0.0:7000", ("0.0.0.0", 7000)), ("10.0.0.1", ("10.0.0.1", 0))])
def test_where_to_listen(text, address):
    assert read_listen(text) == address


@pytest.mark.parametrize("text", [":7000", "10.0.0.1:", "10.0.0.1:99999", "host:port"])
def test_nowhere_to_listen(text):
    with pytest.raises(PlanError, match="must be an address of this machine and a port"):
        read_listen(text)


@pytest.fixture
def hosts(tmp_path):
    (tmp_path / "hosts.txt").write_text("a slots=2\nb\nc slots=4\n")
    return f"ssh:{tmp_path / 'hosts.txt'}"


def test_ranks_fill_the_slots_of_a_hosts_file(hosts):
    assert (Options(on=hosts).workers, Options(on=hosts).num_hosts) == (7, 3)
    assert (Options(on=hosts, nodes=2).workers, Options(on=hosts, nodes=2).num_hosts) == (3, 2)
    assert (Options(on=hosts, servers=1, strategy="ps").workers, Options(on=hosts, workers=2).num_hosts) == (6, 2)


def test_where_nobody_else_can_come_a_host_that_has_lost_its_rank_is_waited_for(hosts):
    alone = Options(on=hosts, nodes="2:3", hosts_within="1m", strategy="ring")
    assert (alone.waits_s, alone.returns_s) == (0.0, 60.0)
    by_hand = Options(on=hosts, nodes="2:3", hosts_within="1m", listen="0.0.0.0:7000", strategy="ring")
    assert (by_hand.waits_s, by_hand.returns_s) == (60.0, 0.0)
    assert Options(on=hosts, nodes=2).returns_s == 0.0


def test_ranks_where_a_manager_chooses_the_hosts():
    assert (Options(on="slurm", nodes=4).workers, Options(on="slurm", nodes=4).num_hosts) == (4, 4)
    assert Options(on="slurm", workers=3, servers=1, strategy="ps").num_hosts == 4
    assert Options(on="slurm", workers=8, nodes=2).num_hosts == 2


@pytest.mark.parametrize(
    ("wishes", "told"),
    [
        ({"nodes": 3}, "--nodes 3 is for hosts, and none are asked for"),
        ({"python": "/usr/bin/python3"}, "is for hosts"),
        ({"on": "slurm"}, "needs to know how many hosts.*--nodes N"),
        ({"on": "local", "nodes": 2, "debug": True}, "--debug keeps all ranks on this machine"),
        ({"on": "local", "nodes": 0}, "nodes is 0"),
        ({"on": "local", "nodes": 2, "hosts_within": "soon"}, "--hosts-within"),
        ({"on": "local", "nodes": 2, "gang": True}, "--gang is for hosts of Slurm"),
        ({"cpus": 2}, "--cpus is for hosts of Slurm or YARN or Ray"),
        ({"on": "ray", "nodes": 2, "hosts_for": "1h"}, "--hosts-for is for hosts of Slurm or YARN"),
        ({"on": "slurm", "nodes": 2, "hosts_for": "long"}, "--hosts-for long"),
    ],
)
def test_wishes_that_make_no_sense(wishes, told):
    with pytest.raises(PlanError, match=told):
        Options(**wishes)


def test_jobs_of_slurm_can_be_asked_for_again():
    options = Options(on="slurm:short", nodes=2, gang=True, cpus=4, hosts_for="1h")

    assert options.typed_hosts == "--on slurm:short --nodes 2 --hosts-for 3600.0 --cpus 4 --gang"


def test_an_environment_is_for_hosts_and_its_file_is_found_from_anywhere(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)

    assert Options(on="local", nodes=2, env="my.lock").typed_hosts == f"--on local --nodes 2 --env {tmp_path}/my.lock"
    with pytest.raises(PlanError, match=r"--env my.lock is for hosts, and none are asked for. Add --on"):
        Options(env="my.lock")


def test_hosts_that_are_there_already(monkeypatch):
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "0")
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "3")
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SLURM_JOB_NUM_NODES", "5")

    assert (Options(on="mpi").workers, Options(on="mpi", workers=6).num_hosts) == (3, 3)
    assert (Options(on="slurm").workers, Options(on="slurm", workers=4).num_hosts) == (5, 4)
    with pytest.raises(PlanError, match="needs to know how many hosts"):
        Options(on="slurm:short")


def test_ranks_talk_through_mpi_where_each_process_of_mpi_is_one(monkeypatch):
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "0")
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "3")
    through = {"on": "mpi", "transport": "mpi"}

    assert Options(**through).typed_hosts == "--on mpi --nodes 3 --transport mpi"
    assert Options(**through, workers=2, servers=1, strategy="ps").num_hosts == 3
    for wishes, told in (
        ({"on": "mpi", "transport": "mpi", "workers": 4}, r"3 processes that MPI has started one rank, and 4"),
        ({"on": "mpi", "transport": "mpi", "strategy": "single"}, "one rank, and 1 are asked for"),
        ({"on": "mpi", "transport": "mpi", "tls": True}, "--tls does not encrypt"),
        ({"on": "mpi", "transport": "mpi", "env": "my.lock"}, "--env makes no environment"),
        ({"on": "local", "nodes": 2, "transport": "mpi"}, r"mpirun -np 2 nfold train FILE\.py --on mpi"),
        ({"workers": 2, "transport": "mpi"}, "--transport mpi needs ranks that MPI has started"),
        ({"transport": "rdma"}, "unknown transport 'rdma'. Use one of: tcp, mpi"),
    ):
        with pytest.raises(PlanError, match=told):
            Options(**wishes)


def test_more_hosts_than_the_file_lists(hosts, tmp_path):
    with pytest.raises(PlanError, match=r"--nodes 4: .* lists 3 hosts"):
        Options(on=hosts, nodes=4)
    (tmp_path / "hosts.txt").write_text("a b")
    with pytest.raises(ClusterError, match="line 1"):
        Options(on=hosts)


def test_what_to_type_for_the_same_hosts_again(hosts):
    assert (
        Options(on=hosts, nodes=2, python="/opt/my python").typed_hosts
        == f"--on {hosts} --nodes 2 --python '/opt/my python'"
    )
    assert Options(listen="0.0.0.0:7000", nodes=2).typed_hosts == "--nodes 2 --listen 0.0.0.0:7000"
    assert Options().typed_hosts == ""
