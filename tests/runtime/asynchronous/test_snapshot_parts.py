"""What a worker alone has of a snapshot."""

import torch
from torch import nn

from nfold.planning.asynchronous.snapshot_steps import SnapshotSteps
from nfold.runtime.asynchronous.snapshot_parts import WorkerPart
from nfold.runtime.checkpoint.checkpoint_format import Offer


class Counting(nn.Module):
    """Says how many batches it has seen, beside tensors: the same object each time."""

    def __init__(self):
        super().__init__()
        self.seen = {"batches": 0}

    def get_extra_state(self):
        return self.seen

    def set_extra_state(self, state):
        self.seen = state

    def forward(self, x):
        self.seen["batches"] += 1
        return x


def test_what_a_module_says_beside_tensors_is_that_of_the_step_of_the_snapshot():
    model = Counting()
    part = WorkerPart(model, SnapshotSteps(4, 0, 99), (), (), 0)
    for step in range(5):  # the last one is not to be in it
        with part.computing(step):
            model(torch.zeros(1))
    assert part.add_to(Offer([], [], {}), 4).facts["extras"] == {"_extra_state": {"batches": 4}}
