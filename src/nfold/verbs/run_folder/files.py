"""What the files of a run's folder are called, and which files in it are somebody else's."""

import contextlib
import os
import re
from pathlib import Path

from nfold.core import codec
from nfold.core.cluster import Cluster
from nfold.core.environment import Environment
from nfold.core.graph import ModelGraph
from nfold.core.plan import Plan
from nfold.core.profile import Profile
from nfold.core.report import Report
from nfold.core.residency import PlacedData
from nfold.core.run_state import RunState
from nfold.core.trace import Trace
from nfold.runtime.control.spool import PARTIAL
from nfold.verbs.options.job_record import JobRecord

CHECKPOINT = "checkpoint.safetensors"
MODEL = "model.safetensors"
BEST = "best.safetensors"
AVERAGE = "average.safetensors"
EMULATED = "emulated.toml"
STATE = "state.json"
PLACE = "place.json"
HISTORY = "history.jsonl"
LOG = "log.txt"
EVENTS = "events.jsonl"
"""Hosts that came and went, one a line."""
HELD = "held.json"
"""How hosts are found again whose command is gone."""
TRACE, REPORT, PAGE = "trace.json", "report.json", "report.html"
PLANNED: dict[str, type] = {
    "graph.json": ModelGraph,
    "profile.json": Profile,
    "cluster.json": Cluster,
    "plan.json": Plan,
}
"""What a job writes before it says in job.json how it was started."""
NAMES: dict[type, str] = {
    **{kind: name for name, kind in PLANNED.items()},
    **{JobRecord: "job.json", Trace: TRACE, Report: REPORT, Environment: "environment.json", RunState: STATE},
    PlacedData: PLACE,
}
"""Of the file that holds a noun."""
FILES = (
    *(*PLANNED, "job.json", TRACE, REPORT),
    *(HISTORY, EVENTS, LOG, STATE, PLACE, CHECKPOINT, MODEL, BEST, AVERAGE, EMULATED, HELD),
)
SAMPLES = ".nfold-samples"
"""Folder of what came to the nodes of an emulated cluster."""
_SENT = re.compile(rf"(checkpoint|model|average)-\d+{re.escape(PARTIAL)}")
"""Files that ranks send, while they come."""


def foreign(path: Path) -> list[str]:
    """Return names in a folder that is to become a run's.

    A run that never began may have left its log, which is only added to, and its state, which is written anew.
    """
    own = {LOG, *(f"{name}{PARTIAL}" for name in FILES)}
    with contextlib.suppress(codec.CodecError):  # then it is none of ours
        codec.load(RunState, path / STATE)
        own.add(STATE)
    return [
        name
        for name in sorted(os.listdir(path))
        if name not in own and not name.startswith(".") and not _SENT.fullmatch(name)
    ]
