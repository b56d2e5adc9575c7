"""Makes a change real that was simulated: the very plan that was judged is played on a cluster that is so.

folder of a run   ──look back──>  question that simulates like it  ──change──>  plan, changed question
emulated cluster  ───────────── what differs between the two questions ──────>  emulated cluster
plan, cluster     ──────────── folder of a run that has not begun ───────────>  resumed, so played as it is
"""

import os
import re
from dataclasses import dataclass, replace
from pathlib import Path

from cases import Case

import nfold
from nfold.analysis.reporting.gains_of_changes import TriedChange
from nfold.analysis.resimulating.changes import Case as Judged
from nfold.analysis.resimulating.changes import Changed
from nfold.core.cluster import Channel, Cluster, Node
from nfold.core.job import Known
from nfold.core.report import Report
from nfold.launch.emulation.cgroups import as_emulated
from nfold.verbs.options.job_record import JobRecord
from nfold.verbs.run_folder.folder import RunFolder

PROGRAMS = Path(__file__).parents[1] / "programs"
TWICE = """
def program():
    return replace(original(), batch_size=2 * original().batch_size)
"""
HALVED = """
def halved_data():
    inputs, targets = original().train_data().tensors
    return TensorDataset(inputs.bfloat16(), targets)

def program():
    once = original()
    return replace(
        once,
        model=lambda: once.model().bfloat16(),
        loss=lambda outputs, targets: once.loss(outputs.float(), targets),
        train_data=halved_data,
        test_data=None,
    )
"""
IMPORTS = """
import sys
from dataclasses import replace
from torch.utils.data import TensorDataset
sys.path.insert(0, {folder!r})
from {module} import {function} as original
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Played:
    """A case that was played, and what is known of it."""

    case: Case
    folder: RunFolder
    judged: Judged


def is_possible(played: Played, tried: TriedChange) -> bool:
    """Whether this machine can be made so: it has the cores, and the program can be changed so."""
    if tried.kind == "input":
        return played.case.program.startswith("slow_input.py")
    cluster = _cluster(_record(played), played.judged, tried.changed)
    return sum(node.cores for node in cluster.nodes) <= (os.cpu_count() or 1)


def play(played: Played, tried: TriedChange, out: Path, steps: int) -> Report:
    """Play a change for so many steps.

    Args:
        played: the run that was judged.
        tried: what it said.
        out: a folder that is not there yet.
        steps: to train.
    """
    if tried.kind == "bytes":
        return _play_halved(played, out, steps)
    record, changed = _record(played), tried.changed
    plan = replace(changed.plan, nodes=tuple(map(_name, changed.plan.nodes[: changed.plan.world_size])))
    cluster = _cluster(record, played.judged, changed)
    known = played.folder.known()
    folder = RunFolder.create(out, "changed")
    folder.save_known(
        Known(graph=known.graph, profiles=dict(changed.question.profiles), cluster=_known(changed), plan=plan),
        plan,
        replace(
            record,
            source=_source(played, tried, out),
            workers=plan.workers,
            servers=plan.servers,
            strategy=plan.strategy,
            emulated=cluster,
            steps=steps,
            total_steps=steps,
        ),
    )
    folder.release()
    return nfold.resume(out, fault=() if tried.kind == "node" else played.case.faults).report


def _play_halved(played: Played, out: Path, steps: int) -> Report:
    """Weights of half the bytes are another program: the same strategy and chunks, planned anew."""
    case, plan = played.case, played.judged.plan
    return nfold.train(
        _generated(case, HALVED, out),
        emulate=_record(played).emulated,
        fault=case.faults,
        strategy=plan.strategy,
        workers=plan.workers,
        servers=plan.servers,
        chunks=plan.chunks,
        steps=steps,
        evaluate=False,
        checkpoint_every=0,
        out=out,
    ).report


def _source(played: Played, tried: TriedChange, out: Path) -> str:
    if tried.kind == "batch":
        return _generated(played.case, TWICE, out)
    if tried.kind == "input":
        return f"{PROGRAMS / 'slow_input.py'}:fast"
    return _record(played).source


def _generated(case: Case, text: str, out: Path) -> str:
    """Write a program made from the case's own, beside the run's folder."""
    path, _, function = case.program.partition(":")
    script = out.with_suffix(".py")
    head = IMPORTS.format(folder=str(PROGRAMS), module=Path(path).stem, function=function or "program")
    script.write_text(head + text)
    return f"{script}:program"


def _record(played: Played) -> JobRecord:
    return played.folder.record()


def _cluster(record: JobRecord, judged: Judged, changed: Changed) -> Cluster:
    """Return the cluster to emulate: what differs between the two questions differs from what was emulated."""
    assert record.emulated is not None
    before, nodes = {node.name: node for node in judged.question.cluster.nodes}, []
    for name in dict.fromkeys(changed.plan.nodes[: changed.plan.world_size]):
        origin = name.partition("/")[0]
        nodes.append(_node(record.emulated.node(origin), before[origin], changed.question.cluster.node(name)))
    return as_emulated(Cluster(nodes=tuple(nodes)))


def _node(emulated: Node, before: Node, after: Node) -> Node:
    return replace(
        emulated,
        name=_name(after.name),
        cores=after.cores,
        uplink=_channel(emulated.uplink, before.uplink, after.uplink),
        downlink=_channel(emulated.downlink, before.downlink, after.downlink),
    )


def _channel(emulated: Channel | None, before: Channel | None, after: Channel | None) -> Channel | None:
    if emulated is None or before is None or after is None:
        return emulated
    return replace(
        emulated,
        bandwidth_bytes_per_s=emulated.bandwidth_bytes_per_s
        * after.bandwidth_bytes_per_s
        / before.bandwidth_bytes_per_s,
        latency_s=emulated.latency_s if after.latency_s > 0 else 0.0,
    )


def _known(changed: Changed) -> Cluster:
    cluster = changed.question.cluster
    return replace(cluster, nodes=tuple(replace(node, name=_name(node.name)) for node in cluster.nodes))


def _name(name: str) -> str:
    """A node that a question adds is called after the one that it is like, which no cluster file allows."""
    return re.sub("/", "-", name)
