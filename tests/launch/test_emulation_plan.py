"""What emulation would do, as data: names, commands, limits, who owns what. Nothing is made, no root is needed."""

import errno
import os
import subprocess
import sys
from dataclasses import replace

import pytest

from nfold.core.cluster import Channel, Cluster
from nfold.core.text.cluster_file import parse_cluster
from nfold.errors import ClusterError
from nfold.launch.emulation import emulated_cluster
from nfold.launch.emulation.cgroups import (
    Groups,
    Hierarchy,
    as_emulated,
    cpu_quota,
    cpu_settings,
    find_hierarchy,
    memory_settings,
    swap_settings,
)
from nfold.launch.emulation.controllers import enable_controllers, put_back
from nfold.launch.emulation.namespaces import hosts, is_namespace_of, make_seats, network, separation
from nfold.launch.emulation.owners import Owner, Registry, is_dead, this_process
from nfold.launch.emulation.shaping import (
    LEAST_BURST_BYTES,
    LEAST_WINDOW_BYTES,
    MOST_BURST_BYTES,
    MOST_WINDOW_BYTES,
    burst_bytes,
    packets,
    shape,
    window_bytes,
)
from nfold.machine.processes import start_ticks


def channel(rate, latency_s=0.0):
    return Channel(latency_s=latency_s, bandwidth_bytes_per_s=rate, origin="declared")


def cluster(**fields) -> Cluster:
    lines = "".join(f"{key} = {value}\n" for key, value in fields.items())
    return parse_cluster(f'[[node]]\nname = "pi"\n{lines}', "c.toml")


# What a box says of itself


@pytest.fixture
def late(tmp_path, monkeypatch):
    """A box, not built, of two nodes with 3 and 5 ms."""
    monkeypatch.setattr(emulated_cluster, "groups_of", lambda number: None)
    nodes = "".join(
        f'[[node]]\nname = "{name}"\ncores = 0.1\nuplink = "100 Mbit/s"\nlatency = "{ms} ms"\n'
        for name, ms in (("a", 3), ("b", 5))
    )
    return emulated_cluster.EmulatedCluster(parse_cluster(nodes, "c.toml"), 1, tmp_path)


def test_without_netem_ranks_delay_what_they_receive_and_the_user_is_told(late):
    late.has_netem = False
    (note,) = late.notes
    assert note.startswith("this kernel cannot delay packets (it lacks netem): nfold delays what its own ranks receive")
    both = late.cluster.node("a").uplink.latency_s + late.cluster.node("b").downlink.latency_s
    assert late.delay_s("a", "b") == both == pytest.approx(0.004), "half of what each has"
    assert late.delay_s("a", "a") == 0.0


def test_with_netem_the_kernel_delays_and_there_is_nothing_to_tell(late):
    late.has_netem = True
    assert late.notes == []
    assert late.delay_s("a", "b") == 0.0


# Layout


def test_the_network_of_two_nodes():
    seats = make_seats(7, ["a", "b"])
    assert [(seat.namespace, seat.address, seat.port) for seat in seats] == [
        ("nfold-7-a", "10.77.7.1", "port0"),
        ("nfold-7-b", "10.77.7.2", "port1"),
    ]
    assert [(batch.command, batch.lines) for batch in network(7, seats)] == [
        (["ip", "-batch", "-"], ("netns add nfold-7", "netns add nfold-7-a", "netns add nfold-7-b")),
        (
            ["ip", "-n", "nfold-7", "-batch", "-"],
            (
                "link add switch type bridge",
                "link set dev switch addrgenmode none up",
                "link add port0 type veth peer name eth0 netns nfold-7-a",
                "link set dev port0 master switch addrgenmode none up",
                "link add port1 type veth peer name eth0 netns nfold-7-b",
                "link set dev port1 master switch addrgenmode none up",
            ),
        ),
        *(
            (
                ["ip", "-n", f"nfold-7-{name}", "-batch", "-"],
                (
                    "link set dev lo up",
                    f"address add 10.77.7.{index}/24 dev eth0",
                    "link set dev eth0 addrgenmode none up",
                ),
            )
            for index, name in enumerate("ab", start=1)
        ),
    ]


def test_emulations_do_not_meet():
    one, other = make_seats(1, ["a", "b"]), make_seats(12, ["a", "b"])
    for field in ("namespace", "address"):
        assert not {getattr(seat, field) for seat in one} & {getattr(seat, field) for seat in other}
    assert [is_namespace_of(1, name) for name in ("nfold-1", "nfold-1-a", "nfold-12", "nfold-12-a", "mine")] == [
        *(True, True),
        *(False, False, False),
    ]


def test_there_are_no_more_nodes_than_addresses():
    assert make_seats(0, [str(index) for index in range(254)])[-1].address == "10.77.0.254"
    with pytest.raises(ClusterError, match="at most 254 nodes, and 255 are declared"):
        make_seats(0, [str(index) for index in range(255)])


def test_nodes_find_each_other_by_name():
    assert hosts(make_seats(3, ["a", "b"])) == "127.0.0.1 localhost\n10.77.3.1 a\n10.77.3.2 b\n"


def test_a_partition_is_at_the_switch_so_that_nobody_is_told():
    seat = make_seats(7, ["a", "b"])[1]
    assert separation(7, seat, joined=False).lines == ("link set dev port1 nomaster",)
    assert separation(7, seat, joined=True).lines == ("link set dev port1 master switch",)


# Shaping


def test_a_rate_is_held_by_a_token_bucket():
    assert shape("eth0", channel(12.5e6), with_netem=False) == (
        "qdisc replace dev eth0 root handle 1: tbf rate 100000000bit burst 6250 limit 67108864",
    )


@pytest.mark.parametrize("rate", [1e3, 1.25e7, 1.25e8, 1.25e10])
def test_a_bucket_lets_the_largest_packet_pass_whole(rate):
    line, _ = packets("eth0", burst_bytes(channel(rate)))
    assert line.startswith("link set dev eth0 gso_max_size ")
    burst = int(shape("eth0", channel(rate), with_netem=False)[0].partition("burst ")[2].split()[0])
    frames = int(line.split()[-1]) / 1500
    assert frames > 1
    assert frames * (1500 + 66) < burst


def test_a_bucket_never_becomes_smaller(late, monkeypatch):
    """What waits in a queue may be as large as the largest that there was."""
    done = []
    monkeypatch.setattr(emulated_cluster, "perform", done.append)
    for mbit in (100, 800, 8):
        late.set_links(mbit * 1e6 / 8)
    buckets = [line for batch in done for line in batch.lines if " burst " in line]
    bursts = [int(line.partition("burst ")[2].split()[0]) for line in buckets]
    assert bursts == [6250] * 4 + [50_000] * 8
    assert [batch.lines[0].split()[-1] for batch in done if batch.tool == "ip"] == ["5625"] * 2 + ["45000"] * 4


@pytest.mark.parametrize(("rate", "burst"), [(1.25e5, LEAST_BURST_BYTES), (1.25e9, MOST_BURST_BYTES)])
def test_buckets_hold_three_frames_at_least_and_never_much(rate, burst):
    assert f" burst {burst} " in shape("eth0", channel(rate), with_netem=False)[0]


def test_a_window_holds_what_a_link_carries_while_its_node_rests():
    assert window_bytes(channel(12.5e6)) == 250_000
    assert window_bytes(channel(12.5e6), 0.2) == 2_750_000
    assert window_bytes(channel(1e5)) == LEAST_WINDOW_BYTES
    assert window_bytes(None) == MOST_WINDOW_BYTES


def test_latency_is_the_kernels_where_it_can():
    assert shape("eth0", channel(12.5e6, 0.001), with_netem=True) == (
        "qdisc replace dev eth0 root handle 1: netem delay 1000us limit 100000",
        "qdisc replace dev eth0 parent 1:1 handle 10: tbf rate 100000000bit burst 6250 limit 67108864",
    )
    assert len(shape("eth0", channel(12.5e6, 0.001), with_netem=False)) == 1
    assert len(shape("eth0", channel(12.5e6), with_netem=True)) == 1


def test_nothing_holds_back_what_is_not_declared():
    assert shape("eth0", None, with_netem=False) == ("qdisc del dev eth0 root",)


# Control groups

V1 = "tmpfs /c tmpfs rw 0 0\ncgroup /c/cpu,cpuacct cgroup rw,cpu,cpuacct 0 0\ncgroup /c/m cgroup rw,memory 0 0\n"


def groups_in(*folders) -> Groups:
    """Groups of version 2 in one folder, of version 1 in two."""
    version = 2 if len(folders) == 1 else 1
    return Groups(Hierarchy(version=version, folders=folders), "nfold-7", folders[0].parent / "controllers")


HYBRID = V1 + "cgroup2 /c/unified cgroup2 rw 0 0\n"
V2 = "cgroup2 /c cgroup2 rw,nosuid 0 0\n"


@pytest.mark.parametrize(
    ("mounts", "controllers", "version", "folders"),
    [
        (V1, {}, 1, ["/c/cpu,cpuacct", "/c/m"]),
        (HYBRID, {"/c/unified": "hugetlb"}, 1, ["/c/cpu,cpuacct", "/c/m"]),
        (V2, {"/c": "cpuset cpu io memory pids"}, 2, ["/c"]),
    ],
    ids=["1", "hybrid", "2"],
)
def test_both_versions_are_found(mounts, controllers, version, folders):
    found = find_hierarchy(mounts, controllers)
    assert (found.version, [str(folder) for folder in found.folders]) == (version, folders)


@pytest.mark.parametrize("mounts", ["", V2, "cgroup /c/cpu cgroup rw,cpu 0 0\n"])
def test_a_system_without_control_groups_is_refused(mounts):
    with pytest.raises(ClusterError, match="needs the control groups cpu and memory"):
        find_hierarchy(mounts, {"/c": "cpu pids"})


@pytest.mark.parametrize(
    ("cores", "quota"),
    [(1.0, (10_000, 10_000)), (0.5, (5000, 10_000)), (4.0, (40_000, 10_000)), (0.05, (1000, 20_000))],
)
def test_quotas_have_short_periods_and_never_less_than_the_kernel_grants(cores, quota):
    assert cpu_quota(cores) == quota


def test_an_emulated_cluster_knows_the_periods_of_its_quotas() -> None:
    made = as_emulated(
        Cluster(nodes=tuple(replace(cluster(cores=cores).nodes[0], name=f"n{cores}") for cores in (0.3, 0.01)))
    )
    assert made.is_emulated
    assert [node.quota_period_s for node in made.nodes] == [0.01, 0.1], "the kernel grants no less than 1 ms"


def test_limits_in_the_words_of_both_versions():
    assert cpu_settings(2, 0.5) == [("cpu.max", "5000 10000"), ("cpu.weight", "50")]
    quota = [("cpu.cfs_period_us", "10000"), ("cpu.cfs_quota_us", "5000")]
    assert cpu_settings(1, 0.5) == [*quota, ("cpu.shares", "512")]
    assert [cpu_settings(2, cores)[1] for cores in (0.001, 1000.0)] == [("cpu.weight", "1"), ("cpu.weight", "10000")]
    node = cluster(memory='"1 GiB"').nodes[0]
    assert memory_settings(2, node) == [("memory.max", str(2**30))]
    assert memory_settings(1, node) == [("memory.limit_in_bytes", str(2**30))]
    assert memory_settings(1, cluster().nodes[0]) == []
    assert swap_settings(2, node) == [("memory.swap.max", "0")]
    assert swap_settings(1, node) == [("memory.memsw.limit_in_bytes", str(2**30))], "memory and swap together"
    assert swap_settings(1, cluster().nodes[0]) == swap_settings(2, cluster().nodes[0]) == []


def test_groups_of_version_2_hand_their_controllers_down(tmp_path):
    groups = groups_in(tmp_path)
    groups.create(cluster(memory='"1 GiB"').nodes)
    groups.set_cores("pi", 0.5)
    for folder in (tmp_path, tmp_path / "nfold-7"):
        assert (folder / "cgroup.subtree_control").read_text() == "+cpu +memory"
    assert (tmp_path / "nfold-7/node-pi/memory.max").read_text() == str(2**30)
    assert (tmp_path / "nfold-7/node-pi/cpu.max").read_text() == "5000 10000"
    assert groups.process_lists("pi") == [tmp_path / "nfold-7/node-pi/cgroup.procs"]


def test_groups_of_version_1_lie_under_each_controller(tmp_path):
    (tmp_path / "cpu").mkdir()
    (tmp_path / "memory").mkdir()
    groups = groups_in(tmp_path / "cpu", tmp_path / "memory")
    groups.create(cluster(memory='"1 GiB"').nodes)
    groups.set_cores("pi", 0.5)
    assert (tmp_path / "cpu/nfold-7/node-pi/cpu.cfs_quota_us").read_text() == "5000"
    assert (tmp_path / "memory/nfold-7/node-pi/memory.limit_in_bytes").read_text() == str(2**30)
    assert [str(processes.relative_to(tmp_path)) for processes in groups.process_lists("pi")] == [
        "cpu/nfold-7/node-pi/cgroup.procs",
        "memory/nfold-7/node-pi/cgroup.procs",
    ]


def test_a_node_may_be_called_like_a_file_of_the_kernels(tmp_path):
    groups = groups_in(tmp_path)
    (tmp_path / "nfold-7").mkdir()
    for name in ("tasks", "cgroup.procs", "cpu.max"):
        (tmp_path / "nfold-7" / name).touch()
    (tmp_path / "nfold-7").rename(tmp_path / "kernels")
    names = [path.name for path in (tmp_path / "kernels").iterdir()]
    groups.create(parse_cluster("".join(f'[[node]]\nname = "{name}"\n' for name in names), "c.toml").nodes)
    made = {path.name for path in (tmp_path / "nfold-7").iterdir() if path.is_dir()}
    assert len(made) == 3
    assert not made & set(names)


def test_a_kernel_that_refuses_a_group_is_quoted(tmp_path):
    groups = groups_in(tmp_path / "cpu", tmp_path / "memory")
    with pytest.raises(ClusterError, match=r"cannot make a control group: .*nfold-7: No such file or directory"):
        groups.create(cluster().nodes)


def test_removing_groups_that_are_not_there_is_no_error(tmp_path):
    groups_in(tmp_path).remove()


def test_the_root_gets_back_what_it_had(tmp_path):
    """Its controllers are a plain file here, so that the last line written stands in it."""
    control, memo = tmp_path / "cgroup.subtree_control", tmp_path / "controllers"
    control.write_text("cpu io\n")
    enable_controllers(tmp_path, ("cpu", "memory"), memo)
    assert (control.read_text(), memo.read_text()) == ("+memory", "memory"), (
        "what was on before is not ours to turn off"
    )
    control.write_text("cpu io memory\n")
    enable_controllers(tmp_path, ("cpu", "memory"), memo)
    assert (control.read_text(), memo.read_text()) == ("cpu io memory\n", "memory"), "of a second emulation"
    put_back(tmp_path, memo)
    assert (control.read_text(), memo.exists()) == ("-memory", False)
    control.write_text("cpu io\n")
    put_back(tmp_path, memo)
    assert control.read_text() == "cpu io\n", "nothing was turned on"


def test_a_controller_that_others_hand_on_by_now_stays_theirs(tmp_path, monkeypatch):
    memo, codes = tmp_path / "controllers", [errno.EIO, errno.EBUSY]
    enable_controllers(tmp_path, ("cpu",), memo)

    def refuse(*_, **__):
        code = codes.pop(0)
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(type(tmp_path), "write_text", refuse)
    with pytest.raises(
        ClusterError, match=r"cannot turn the controller cpu of .* off again: Input/output error. Write"
    ):
        put_back(tmp_path, memo)
    assert memo.exists()
    put_back(tmp_path, memo)
    assert not memo.exists(), "others use it: it is no longer ours to turn off"


def test_the_machine_is_restored_by_the_last_emulation_alone(tmp_path):
    registry, restored = Registry(tmp_path / "state"), []
    first, second = (registry.claim(this_process(), lambda _: None) for _ in range(2))
    registry.release(first, lambda: restored.append(first))
    assert restored == []
    registry.release(second, lambda: restored.append(second))
    assert restored == [second]
    registry.claim(Owner(pid=this_process().pid, start_ticks=1), lambda _: None)
    registry.sweep(lambda _: None, lambda: restored.append("after a killed one"))
    assert restored == [second, "after a killed one"]


# Owners


def test_an_owner_is_dead_when_its_number_is_free_or_a_strangers():
    owner = Owner(pid=10, start_ticks=500)
    assert not is_dead(owner, {10: 500}.get)
    assert is_dead(owner, {}.get)
    assert is_dead(owner, {10: 501}.get), "the number is another process's now"
    assert is_dead(None, {}.get), "it died before it could write itself down"
    assert not is_dead(this_process())


def test_a_process_that_has_ended_is_no_owner_even_if_nobody_has_reaped_it():
    process = subprocess.Popen([sys.executable, "-c", "pass"])
    descriptor = os.pidfd_open(process.pid)
    os.waitid(os.P_PIDFD, descriptor, os.WEXITED | os.WNOWAIT)
    assert start_ticks(process.pid) is None
    os.close(descriptor)
    process.wait()


def test_numbers_are_given_once_and_those_of_the_dead_are_cleared_first(tmp_path):
    registry, cleared = Registry(tmp_path / "state"), []
    assert [registry.claim(this_process(), cleared.append) for _ in range(3)] == [0, 1, 2]
    assert cleared == []
    registry.release(1, lambda: cleared.append("restored while others run"))
    assert registry.claim(Owner(pid=this_process().pid, start_ticks=1), cleared.append) == 1, (
        "dead as soon as it is there"
    )
    (tmp_path / "state/9").mkdir()
    assert registry.claim(this_process(), cleared.append) == 1
    assert cleared == [1, 9]
    assert not (tmp_path / "state/9").exists()


def test_a_number_whose_remains_cannot_be_cleared_is_kept(tmp_path):
    registry = Registry(tmp_path)
    registry.claim(Owner(pid=this_process().pid, start_ticks=1), lambda _: None)

    def fail(number):
        raise ClusterError(f"cannot clear {number}")

    with pytest.raises(ClusterError, match="cannot clear 0"):
        registry.claim(this_process(), fail)
    assert registry.folder(0).exists()


# What is refused


@pytest.mark.parametrize(
    ("change", "fragment"),
    [
        (lambda patch: patch.setattr(os, "geteuid", lambda: 1000), "needs root, and this is user 1000"),
        (
            lambda patch: patch.setattr(emulated_cluster.shutil, "which", lambda tool: None if tool == "tc" else tool),
            "needs tc, not",
        ),
        (lambda patch: patch.setattr(sys, "platform", "darwin"), "needs Linux, and this is darwin"),
    ],
)
def test_machines_that_cannot_emulate_are_told_why(monkeypatch, change, fragment):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(emulated_cluster.shutil, "which", lambda tool: tool)
    monkeypatch.setattr(sys, "platform", "linux")
    emulated_cluster.check_machine()
    change(monkeypatch)
    with pytest.raises(ClusterError, match=fragment):
        emulated_cluster.check_machine()
