"""What a job is asked to do, and what an earlier part of its run has settled already. Plain data."""

from dataclasses import dataclass

from nfold.core.cluster import Cluster
from nfold.core.graph import ModelGraph
from nfold.core.options.averages import Averages
from nfold.core.options.best_model import Keep, read_keep
from nfold.core.options.host_range import HostRange
from nfold.core.options.protection import read_protect
from nfold.core.options.run_options import JobOptions
from nfold.core.plan import Plan
from nfold.core.profile import Profile
from nfold.core.residency import PlacedData


@dataclass(frozen=True, kw_only=True, slots=True)
class JobSettings(JobOptions):
    """What a user asked for, and what follows from that."""

    workers: int = 1
    plan_only: bool = False
    measures_for: tuple[int, ...] = ()
    """Numbers of workers that somebody else plans for: the job ends when all is measured for that. Empty: it plans."""
    lockstep: bool = False
    """Play a step only when the caller asks for it."""
    cluster: Cluster | None = None
    """As declared; None: the machine that the coordinator runs on. Links are measured all the same."""
    box: Cluster | None = None
    """All nodes of the emulated cluster, those that may come later among them; None: nothing is emulated."""
    samples_folder: str | None = None
    """Where samples are kept that come to nodes which are emulated; None: where each node keeps them for all runs."""
    keeps_samples: bool = True
    """False: samples that come to nodes are kept until the job ends alone."""
    run: str = ""
    """Names the run among all others."""
    nodes: tuple[str, ...] = ()
    """Node of each rank, dedicated servers last; empty: all ranks on the only node."""
    first_step_limit_s: float = 300.0
    """A plan whose step is predicted to take longer is refused."""
    stop_after_s: float | None = None
    """The user's limit for the whole run; None: there is none."""
    grant: "Grant | None" = None
    """For how long there are hosts; None: nobody takes them back."""
    hosts: HostRange | None = None
    """How many may train, where they come and go, with a rank on each; None: those that the job begins with."""
    waits_s: float = 0.0
    """How long those that are left wait for others where fewer are left than the job is to train on; 0: nobody can
    come."""
    returns_s: float = 0.0
    """The same where only a host can come that has lost its rank and is there still; 0: none does."""
    trials: "tuple[Trial, ...]" = ()
    """Plans to try one after another with the same ranks, instead of one job."""
    begun: "Begun | None" = None
    """What must not have changed since the run began; None: it begins now."""

    @property
    def world_size(self) -> int:
        """The number of ranks to start: workers and dedicated servers."""
        return self.workers + self.servers

    @property
    def kept(self) -> Keep | None:
        """The metric by which the best model is kept; None: only the last model is."""
        return None if self.keep is None else read_keep(self.keep)

    @property
    def keeps_snapshots(self) -> bool:
        """Whether ranks keep snapshots."""
        return self.hosts is not None and read_protect(self.protect).is_on


@dataclass(frozen=True, kw_only=True, slots=True)
class Grant:
    """For how long hosts are there."""

    by: str
    """Who grants them."""
    seconds: float
    """From when each is there."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Begun:
    """What the first part of a run fixed for the rest of it."""

    batch_size: int
    steps_per_epoch: int
    recipe: "Recipe | None" = None
    """None: an older version did not write it down."""
    is_evaluated: bool = True
    """False: the run ended between its last checkpoint and the evaluation that was due there."""
    placed: PlacedData | None = None
    """None: all ranks read all data."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Recipe:
    """What a program says of a step beside its functions, as far as another one would train something else."""

    num_samples: int
    """Of an epoch: its order follows from that."""
    autocast: str | None
    has_scheduler: bool
    clip_norm: float | None
    order: int | None = None
    """Checksum of the indices that the program's own sampler gives for the first epoch; None: it has none."""
    has_collate: bool = False
    """Whether the program joins items itself."""
    averages: Averages | None = None
    gradients: int | None = None
    """Checksum of the first gradients (`--exact`); None: sums are as they come."""
    items: dict[str, int | None] | None = None
    """Checksums of a few items of the data by their index, as in the first epoch; None: of an item that could not be
    read, or of all: an older version did not write them down."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Trial:
    """A few steps under one plan."""

    strategy: str
    workers: int
    servers: int = 0
    steps: int = 20
    link_bytes_per_s: float | None = None
    """Give every node's uplink and downlink this rate first (emulated clusters); None: leave them."""

    @property
    def world_size(self) -> int:
        """The number of ranks that take part in the trial."""
        return self.workers + self.servers


@dataclass(frozen=True, kw_only=True, slots=True)
class Known:
    """What an earlier part of the job settled, so that it is not measured again."""

    graph: ModelGraph
    profiles: dict[int, Profile]
    cluster: Cluster
    plan: Plan | None = None
    """Replayed as it is; None: planned anew from the same measurements."""
