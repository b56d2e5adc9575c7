"""nfold: PyTorch programs for one device, on the machines you have, with every second accounted for.

Program --profile--> Profile, Cluster --plan--> Plan --schedule--> Schedule --train | simulate--> Trace --> Report
"""

from nfold.core.cluster import Cluster
from nfold.core.graph import ModelGraph
from nfold.core.placement import Placement, chunk_sizes
from nfold.core.plan import Plan
from nfold.core.profile import Profile
from nfold.core.report import Report
from nfold.core.schedule import Schedule
from nfold.core.trace import StepTrace, Trace
from nfold.errors import NfoldError
from nfold.program import Program
from nfold.verbs.compare import compare
from nfold.verbs.demo import demo
from nfold.verbs.train import Run, plan, resume, start, train, why
from nfold.version import __version__

__all__ = [
    "Cluster",
    "ModelGraph",
    "NfoldError",
    "Placement",
    "Plan",
    "Profile",
    "Program",
    "Report",
    "Run",
    "Schedule",
    "StepTrace",
    "Trace",
    "__version__",
    "chunk_sizes",
    "compare",
    "demo",
    "plan",
    "resume",
    "start",
    "train",
    "why",
]
