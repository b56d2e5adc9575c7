"""nfold: PyTorch programs for one device, on the machines you have, with every second accounted for.

    Program --profile--> Profile, Cluster --plan--> Plan --schedule--> Schedule --train | simulate--> Trace --> Report

Names load when they are first used, so that `import nfold` costs next to nothing.
"""

from importlib import import_module

TYPE_CHECKING = False  # typing itself would take longer to import than all else here
if TYPE_CHECKING:
    from typing import Any

    from nfold.core.chunks import chunk_sizes
    from nfold.core.cluster import Cluster
    from nfold.core.findings.node_advice import Advice
    from nfold.core.graph import ModelGraph
    from nfold.core.options.averages import Averages
    from nfold.core.placement import Placement
    from nfold.core.plan import Plan
    from nfold.core.profile import Profile
    from nfold.core.report import Report
    from nfold.core.residency import ResidencyPlan
    from nfold.core.schedule import Schedule
    from nfold.core.trace import StepTrace, Trace
    from nfold.errors import NfoldError
    from nfold.node_data import local_data
    from nfold.program import Program
    from nfold.verbs.advise import advise
    from nfold.verbs.compare import compare
    from nfold.verbs.demo import demo
    from nfold.verbs.place import place
    from nfold.verbs.running.run import Run
    from nfold.verbs.train import plan, resume, start, train, why
    from nfold.version import __version__

_HOME = {
    "Advice": "core.findings.node_advice",
    "Averages": "core.options.averages",
    "Cluster": "core.cluster",
    "ModelGraph": "core.graph",
    "NfoldError": "errors",
    "Placement": "core.placement",
    "Plan": "core.plan",
    "Program": "program",
    "Profile": "core.profile",
    "Report": "core.report",
    "ResidencyPlan": "core.residency",
    "Run": "verbs.running.run",
    "Schedule": "core.schedule",
    "StepTrace": "core.trace",
    "Trace": "core.trace",
    "__version__": "version",
    "advise": "verbs.advise",
    "chunk_sizes": "core.chunks",
    "compare": "verbs.compare",
    "demo": "verbs.demo",
    "local_data": "node_data",
    "place": "verbs.place",
    "plan": "verbs.train",
    "resume": "verbs.train",
    "start": "verbs.train",
    "train": "verbs.train",
    "why": "verbs.train",
}

__all__ = [
    "Advice",
    "Averages",
    "Cluster",
    "ModelGraph",
    "NfoldError",
    "Placement",
    "Plan",
    "Profile",
    "Program",
    "Report",
    "ResidencyPlan",
    "Run",
    "Schedule",
    "StepTrace",
    "Trace",
    "__version__",
    "advise",
    "chunk_sizes",
    "compare",
    "demo",
    "local_data",
    "place",
    "plan",
    "resume",
    "start",
    "train",
    "why",
]


def __getattr__(name: str) -> "Any":
    if name not in _HOME:
        raise AttributeError(f"module 'nfold' has no attribute {name!r}")
    return getattr(import_module(f"nfold.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
