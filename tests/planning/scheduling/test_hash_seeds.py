"""Every rank compiles the schedule for itself, in a process that hashes words in its own way: all must get the same."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.long

ASK = """
import json, sys
sys.path.append(sys.argv[1])
from grids import chain, channel, facts, model, parameter
from nfold.core import codec
from nfold.core.cluster import Cluster, Node
from nfold.core.graph import Statistic
from nfold.planning.scheduling.schedule_compiler import compile_schedule
from nfold.planning.choosing.search import plan
from nfold.planning.choosing.strategies import named

skips = model(
    {
        **{"Stem": ("input",), "Left": ("stem",), "Right": ("stem",), "Join": ("left", "right", "stem")},
        "Loss": ("join", "target"),
    },
    (parameter("tied", 4000, "Left", "Right"), parameter("stem", 900, "Stem"), parameter("join", 7000, "Join")),
    (Statistic(module="Stem", num_channels=3, num_calls=1, dtype="float32"),),
    clips_gradients=True,
)
nodes = tuple(
    Node(
        name=name, cores=1.0, memory_bytes=1 << 30, speed=speed,
        local=channel(), uplink=channel(rate), downlink=channel(1e6),
    )
    for name, rate, speed in (("east", 1e6, 2.0), ("west", 2e5, 1.0), ("north", 1e6, 0.5), ("south", 5e5, 0.5))
)
names = tuple(node.name for node in nodes)
for graph in (skips, chain(3000, 100, 5000, 700)):
    question = facts(graph, 4, cluster=Cluster(nodes=nodes), nodes=names, batch_size=8, chunks=4)
    for strategy in ("ring", "weighted", "hybrid", "hypergraph"):
        found = plan(question, strategy, among=(named(strategy),))
        print(json.dumps(codec.encode(found)))
        placed = (graph, found.placement, found.reductions)
        schedule = compile_schedule(*placed, batch_size=found.batch_size, paces=found.paces)
        print(json.dumps(codec.encode(schedule)))
print(json.dumps(codec.encode(plan(question, "auto"))))
"""


def ask(seed: str) -> "subprocess.Popen[bytes]":
    environment = {**os.environ, "PYTHONHASHSEED": seed}
    command = [sys.executable, "-c", ASK, str(Path(__file__).parents[1])]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE)


def test_plans_and_schedules_do_not_depend_on_how_words_are_hashed():
    asked = [ask("1"), ask("2")]
    one, other = (each.communicate(timeout=60)[0] for each in asked)
    assert [each.returncode for each in asked] == [0, 0]
    assert one.count(b"\n") == 2 * 2 * 4 + 1
    assert one == other
