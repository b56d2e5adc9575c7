"""What a run has done since its command began, added up: what a reader that comes now and then takes differences of."""

import threading
from collections import defaultdict

from nfold.core.trace import StepParts, SystemSample
from nfold.runtime.control import commands as cmd
from nfold.view.prometheus_text import Family, Labels

_TOLD = {
    "nfold_steps_total": "Steps done.",
    "nfold_samples_total": "Samples trained on.",
    "nfold_rank_seconds_total": "Seconds of each rank's steps by what they went to; communication is waiting for it.",
    "nfold_rank_payload_bytes_total": "Bytes of tensors that each rank has sent.",
    "nfold_rank_processor_seconds_total": "Processor seconds of each rank's threads.",
    "nfold_link_sent_bytes_total": "Bytes that left each node by the interface of its ranks, whoever sent them.",
    "nfold_link_received_bytes_total": "Bytes that reached each node by the interface of its ranks.",
    "nfold_checkpoints_total": "Checkpoints kept.",
    "nfold_replans_total": "Changes of the plan, as when members come or go, or links are others.",
    "nfold_link_changes_total": "Times that links were found to be others than measured before.",
    "nfold_notes_total": "Lines that the user was told.",
}
_KINDS = ("input", "forward", "backward", "update", "communication", "other")
_COUNTED = {
    cmd.KeepCheckpoint: "nfold_checkpoints_total",
    cmd.Replanned: "nfold_replans_total",
    cmd.LinksChanged: "nfold_link_changes_total",
}


class RunTotals:
    """Adds up what a command hears of its run; other threads may read it meanwhile."""

    def __init__(self) -> None:
        self._sums = {name: defaultdict[Labels, float](float) for name in _TOLD}
        for name in ("nfold_steps_total", "nfold_samples_total", "nfold_notes_total", *_COUNTED.values()):
            self._sums[name][()] = 0  # there from the beginning, so that the first one shows as a rise
        self._nodes: tuple[str, ...] = ()
        """Of the ranks."""
        self._lock = threading.Lock()

    def take(self, happening: object) -> None:
        """Take in what the command was told."""
        with self._lock:
            if isinstance(happening, cmd.StepDone):
                self._take_step(happening)
            elif isinstance(happening, cmd.Sampled):
                for sample in happening.samples:
                    self._take_sample(sample)
            elif isinstance(happening, cmd.Planned | cmd.Replanned):
                self._nodes = happening.plan.nodes
            if counted := _COUNTED.get(type(happening)):
                self._sums[counted][()] += 1

    def noted(self) -> None:
        """Count a line that the user was told."""
        with self._lock:
            self._sums["nfold_notes_total"][()] += 1

    def families(self) -> list[Family]:
        """Return the sums so far."""
        with self._lock:
            return [Family(name, "counter", told, dict(self._sums[name])) for name, told in _TOLD.items()]

    def _take_step(self, done: cmd.StepDone) -> None:
        self._sums["nfold_steps_total"][()] += 1
        for row in done.parts:
            self._take_row(row)

    def _take_row(self, row: StepParts) -> None:
        rank = (("rank", str(row.rank)), ("node", self._nodes[row.rank]))
        self._sums["nfold_samples_total"][()] += row.samples
        self._sums["nfold_rank_payload_bytes_total"][rank] += row.sent_bytes
        for kind in _KINDS:
            self._sums["nfold_rank_seconds_total"][(*rank, ("kind", kind))] += getattr(row, f"{kind}_s")

    def _take_sample(self, sample: SystemSample) -> None:
        rank = (("rank", str(sample.rank)), ("node", sample.node))
        processor = self._sums["nfold_rank_processor_seconds_total"]
        processor[(*rank, ("kind", "compute"))] += sample.compute_cpu_s
        processor[(*rank, ("kind", "communication"))] += sample.communication_cpu_s
        is_late = sample.node not in self._nodes  # it has left
        if not is_late and sample.rank == self._nodes.index(sample.node):  # the first of those that tell of a node
            node = (("node", sample.node),)
            self._sums["nfold_link_sent_bytes_total"][node] += sample.sent_bytes
            self._sums["nfold_link_received_bytes_total"][node] += sample.received_bytes
