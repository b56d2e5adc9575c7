"""One rank of torch.distributed.pipelining over Gloo that prints what it sends in a step, as its last line.

Started twice or more by run.py. What crosses in the first step alone, to agree on shapes, is not counted.
"""

import argparse
import sys
from pathlib import Path

import torch
from torch import distributed, nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

sys.path.insert(0, str(Path(__file__).parent.parent / "programs"))
from nets32 import BATCH_SIZES, NETS, NUM_CLASSES


class CountedStage(PipelineStage):
    """A stage that adds up the tensors it is about to send."""

    sent_bytes = 0

    def get_fwd_send_ops(self, fwd_chunk_id: int) -> list[distributed.P2POp]:
        """Activations."""
        return self._counted(super().get_fwd_send_ops(fwd_chunk_id))

    def get_bwd_send_ops(self, bwd_chunk_id: int) -> list[distributed.P2POp]:
        """Gradients."""
        return self._counted(super().get_bwd_send_ops(bwd_chunk_id))

    def _counted(self, operations: list[distributed.P2POp]) -> list[distributed.P2POp]:
        self.sent_bytes += sum(each.tensor.nbytes for each in operations)
        return operations


def main() -> None:
    """Take one step."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("net", choices=NETS)
    options.add_argument("--split", type=int, nargs="+", help="first block of each stage but the first")
    options.add_argument("--rank", type=int)
    options.add_argument("--store", help="a file that does not exist yet")
    options.add_argument("--chunks", type=int)
    chosen = options.parse_args()
    rank, stages = chosen.rank, len(chosen.split) + 1
    distributed.init_process_group("gloo", init_method=f"file://{chosen.store}", rank=rank, world_size=stages)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    blocks = list(NETS[chosen.net]())
    bounds = [0, *chosen.split, len(blocks)]
    stage = CountedStage(nn.Sequential(*blocks[bounds[rank] : bounds[rank + 1]]), rank, stages, torch.device("cpu"))
    schedule = Schedule1F1B(stage, chosen.chunks, loss_fn=nn.functional.cross_entropy)
    count = BATCH_SIZES[chosen.net]
    inputs, targets = torch.randn(count, 1, 32, 32), torch.randint(NUM_CLASSES, (count,))
    last = {"target": targets, "losses": []} if rank == stages - 1 else {}
    schedule.step(*([inputs] if rank == 0 else []), **last)
    distributed.destroy_process_group()
    print(stage.sent_bytes)


if __name__ == "__main__":
    main()
