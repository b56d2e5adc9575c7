"""Cluster files: what they may say, and how each mistake is answered."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nfold.core import codec
from nfold.core.cluster import UNLIMITED_BYTES, Channel, Cluster
from nfold.core.text.cluster_file import parse_cluster, read_cluster
from nfold.core.text.cluster_format import format_cluster
from nfold.core.text.quantities import bytes_per_s, num_bytes, seconds
from nfold.errors import ClusterError

WHOLE = """
[[node]]
name = "pi-0"
cores = 0.5
memory = "1 GiB"
uplink = "100 Mbit/s"
downlink = "50 Mbit/s"
latency = "2 ms"
price_per_hour = 0.05
count = 3

[[node]]
name = "desk"
cores = 4
speed = 2.5
uplink = "1 Gbit/s"
"""


def wire(rate, latency_s=0.0):
    return Channel(latency_s=latency_s, bandwidth_bytes_per_s=rate, origin="declared")


def parse(body):
    return parse_cluster(body, "cluster.toml")


def one(line):
    return parse(f'[[node]]\nname = "a"\n{line}\n').nodes[0]


def test_a_whole_file():
    cluster = parse(WHOLE)
    assert [node.name for node in cluster.nodes] == ["pi-0", "pi-1", "pi-2", "desk"]
    pi, desk = cluster.nodes[1], cluster.nodes[3]
    assert (pi.cores, pi.memory_bytes, pi.price_per_hour, pi.speed) == (0.5, 1 << 30, 0.05, 1.0)
    assert (pi.uplink, pi.downlink) == (wire(12.5e6, 0.001), wire(6.25e6, 0.001)), "half of the latency at each end"
    assert (desk.cores, desk.speed, desk.memory_bytes) == (4.0, 2.5, UNLIMITED_BYTES)
    assert desk.uplink == desk.downlink == wire(125e6), "one rate is both directions' rate"
    assert codec.loads(Cluster, codec.dumps(cluster)) == cluster


def test_what_is_left_out():
    node = parse('[[node]]\nname = "a"\n').nodes[0]
    assert (node.cores, node.memory_bytes, node.speed, node.price_per_hour) == (1.0, UNLIMITED_BYTES, 1.0, 0.0)
    assert (node.uplink, node.downlink) == (None, None)


@pytest.mark.parametrize(("pinned", "number"), [("true", 12), ("false", 0), ("5", 5), ("0", 0)])
def test_what_lives_on_a_node(pinned, number):
    body = f'samples = 12\nsample_bytes = 100\npinned = {pinned}\nstorage = "2 kB"\nsamples_per_s = 7\nsite = "hall"'
    node = one(body)
    assert (node.num_samples, node.sample_bytes, node.num_pinned, node.storage_bytes) == (12, 100, number, 2000)
    assert (node.samples_per_s, node.site) == (7.0, "hall")
    assert parse(format_cluster(Cluster(nodes=(node,)))).nodes[0] == node


def test_nothing_is_said_of_samples():
    node = one("")
    assert (node.num_samples, node.sample_bytes, node.num_pinned, node.storage_bytes) == (None, None, 0, None)
    assert (node.samples_per_s, node.site) == (None, "")


@pytest.mark.parametrize(
    ("name", "count", "names"),
    [
        ("pi", 2, ["pi-0", "pi-1"]),
        ("pi-0", 2, ["pi-0", "pi-1"]),
        ("pi-7", 3, ["pi-7", "pi-8", "pi-9"]),
        ("tx2", 2, ["tx2-0", "tx2-1"]),
        ("pi", 1, ["pi-0"]),
    ],
)
def test_several_of_a_kind(name, count, names):
    assert [node.name for node in parse(f'[[node]]\nname = "{name}"\ncount = {count}\n').nodes] == names


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("100 Mbit/s", 12.5e6),
        ("1 kbit/s", 125.0),
        ("10 Tbit/s", 1.25e12),
        ("1 Gbit/s", 125e6),
        ("10Mbit", 1.25e6),
        ("12 MB/s", 12e6),
        ("0.5 MiB/s", 2**19),
    ],
)
def test_rates(text, rate):
    assert bytes_per_s(text) == rate


@pytest.mark.parametrize(("text", "size"), [("1 GiB", 2**30), ("512 MB", 512_000_000), ("1.5 KiB", 1536)])
def test_sizes(text, size):
    assert num_bytes(text) == size


@pytest.mark.parametrize(("text", "time_s"), [("2 ms", 0.002), ("30s", 30.0), ("0 ms", 0.0), ("250 us", 250e-6)])
def test_times(text, time_s):
    assert seconds(text) == pytest.approx(time_s)


@pytest.mark.parametrize(
    ("line", "fragments"),
    [
        ('uplink = "100"', ["uplink: '100' has no unit", "'100 Mbit/s'"]),
        ("uplink = 100", ["uplink: '100' has no unit"]),
        ('uplink = "0 Mbit/s"', ["uplink: '0 Mbit/s' is not positive"]),
        ('uplink = "-5 Mbit/s"', ["uplink: '-5 Mbit/s' is not positive"]),
        ('uplink = "0.9 kbit/s"', ["uplink: '0.9 kbit/s' is too slow", "1 kbit/s"]),
        ('uplink = "1 MB/s"\ndownlink = "11 Tbit/s"', ["downlink: '11 Tbit/s' is too fast", "10 Tbit/s"]),
        ('uplink = "5 MB"', ["uplink: '5 MB' has the unknown unit 'MB'", "MB/s"]),
        ('uplink = "5 mbps"', ["unknown unit 'mbps'"]),
        ('uplink = "fast"', ["uplink: 'fast' is no rate"]),
        ('memory = "1"', ["memory: '1' has no unit", "GiB"]),
        ('memory = "1 Gbit/s"', ["memory", "unknown unit 'Gbit/s'"]),
        ('memory = "0.1 B"', ["memory", "too little"]),
        ('uplink = "1 Gbit/s"\nlatency = "-2 ms"', ["latency: '-2 ms' is negative"]),
        ('uplink = "1 Gbit/s"\nlatency = 2', ["latency: '2' has no unit", "ms"]),
        ('downlink = "1 Gbit/s"', ["downlink: is given without an uplink"]),
        ('latency = "2 ms"', ["latency: is given without an uplink"]),
        ("cores = 0", ["cores: is 0: it must be greater than 0"]),
        ("cores = nan", ["cores: is nan: it must be at least 0"]),
        ("cores = inf", ["cores: is inf"]),
        ("cores = true", ["cores: True is no number"]),
        ('cores = "2"', ["cores: '2' is no number"]),
        ("speed = -1", ["speed: is -1"]),
        ("price_per_hour = -0.1", ["price_per_hour: is -0.1: it must be at least 0"]),
        ("count = 0", ["count: is 0", "whole number from 1"]),
        ("count = 2.5", ["count: is 2.5"]),
        ("samples = -1", ["samples: is -1: it must be a whole number from 0"]),
        ("samples = 1.5", ["samples: is 1.5"]),
        ("samples = 5\nsample_bytes = 0", ["sample_bytes: is 0", "from 1"]),
        ("pinned = true", ["pinned: is given without samples"]),
        ("samples = 5\npinned = 6", ["pinned: is 6", "from 0 to 5"]),
        ('samples = 5\npinned = "all"', ["pinned: is 'all'"]),
        ("samples = 5\nstorage = 100", ["storage: '100' has no unit"]),
        ('samples = 5\nsample_bytes = 30\nstorage = "100 B"', ["storage: is 100 bytes, and its samples take 150"]),
        ("samples_per_s = 0", ["samples_per_s: is 0"]),
        ("site = 2", ["site: 2 is no text"]),
        ("bandwidth = 3", ["bandwidth: there is no such key. Known: name, cores, memory, uplink"]),
    ],
)
def test_what_a_node_can_have_wrong(line, fragments):
    with pytest.raises(ClusterError) as caught:
        one(line)
    for fragment in ("cluster.toml: node 'a': ", *fragments):
        assert fragment in str(caught.value)


@pytest.mark.parametrize(
    ("body", "fragment"),
    [
        ("", "declares no node"),
        ("node = 3", "declares no node"),
        ("nodes = 3", "unknown key 'nodes'"),
        ("[[node]]\ncores = 1", r"\[\[node\]\] number 1: name: is missing"),
        ('[[node]]\nname = "a b"', "name: is 'a b'"),
        ('[[node]]\nname = ".a"', "name: is '.a'"),
        ('[[node]]\nname = "localhost"', "name: is 'localhost', by which every machine means itself"),
        (f'[[node]]\nname = "{"a" * 62}"\ncount = 2', "would have 64 characters of 63"),
        ('[[node]]\nname = "a"\n[[node]]\nname = "a"', "two nodes are called 'a'"),
        ('[[node]]\nname = "a-0"\ncount = 2\n[[node]]\nname = "a-1"', "two nodes are called 'a-1'"),
        ("[[node]\n", "is not TOML"),
    ],
)
def test_what_a_file_can_have_wrong(body, fragment):
    with pytest.raises(ClusterError, match=f"^cluster.toml.*{fragment}"):
        parse(body)


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(ClusterError, match=r"cannot read the cluster file .*nope\.toml: No such file"):
        read_cluster(tmp_path / "nope.toml")
    (tmp_path / "image").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ClusterError, match="no text in UTF-8"):
        read_cluster(tmp_path / "image")
    (tmp_path / "c.toml").write_text(WHOLE)
    assert read_cluster(tmp_path / "c.toml") == parse(WHOLE)


def test_a_cluster_can_be_written_as_a_file():
    cluster = parse(WHOLE)
    assert parse(format_cluster(cluster)) == cluster
    plain = parse('[[node]]\nname = "a"\n')
    assert format_cluster(plain) == '[[node]]\nname = "a"\ncores = 1.0\n'


@given(
    cores=st.floats(0.01, 64),
    memory=st.integers(1, 1 << 50),
    rates=st.tuples(st.integers(1000, 10**13), st.integers(1000, 10**13)),
    latency_us=st.integers(0, 10**6),
    price=st.floats(0, 100),
)
def test_what_is_written_reads_alike(cores, memory, rates, latency_us, price):
    up, down = (wire(rate / 8, latency_us / 2e6) for rate in rates)
    node = replace(one(""), cores=cores, memory_bytes=memory, uplink=up, downlink=down, price_per_hour=price)
    (read,) = parse(format_cluster(Cluster(nodes=(node,)))).nodes
    latencies_s = [link.latency_s for link in (read.uplink, read.downlink)]
    assert latencies_s == pytest.approx([up.latency_s] * 2, abs=1e-12)
    channels = [replace(link, latency_s=up.latency_s) for link in (read.uplink, read.downlink)]
    assert replace(read, uplink=channels[0], downlink=channels[1]) == node
