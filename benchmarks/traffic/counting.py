"""Counts what torch.distributed.pipelining really sends, on small networks, beside what is computed for it."""

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from pipelined import begin_of, sent_bytes

PROGRAMS = Path(__file__).parent.parent / "programs"
STAGE = Path(__file__).with_name("counted_stage.py")
SPLITS = (("alexnet", (5,)), ("resnet18", (4,)), ("vgg", (2, 5)))
"""First block of each stage but the first."""
CHUNKS = 4
LIMIT_S = 120


def counted_bytes(net: str, split: tuple[int, ...]) -> int:
    """Run a process for each stage, and add up what they sent in a step."""
    with tempfile.TemporaryDirectory() as folder:
        shared = ["--store", f"{folder}/store", "--chunks", str(CHUNKS), "--split", *map(str, split)]
        commands = [[sys.executable, str(STAGE), net, "--rank", str(rank), *shared] for rank in range(len(split) + 1)]
        stages = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for command in commands]
        try:
            return sum(int(stage.communicate(timeout=LIMIT_S)[0].split()[-1]) for stage in stages)
        finally:
            for stage in stages:
                stage.kill()
                stage.wait()


def computed_bytes(net: str, split: tuple[int, ...]) -> int:
    """Say the same from the captured graph."""
    import nets32

    from nfold.capture.capture import capture_program

    program = getattr(nets32, f"program_{net}")()
    graph = capture_program(program.model(), program, program.train_data()).graph
    return sent_bytes(graph, [begin_of(graph, block) for block in split], program.batch_size)


def compared() -> list[dict[str, Any]]:
    """Return both for each network; one that differs ends the program."""
    rows = []
    for net, split in SPLITS:
        counted, computed = counted_bytes(net, split), computed_bytes(net, split)
        print(f"torch.distributed.pipelining, {net} split at {split}: {counted} bytes counted, {computed} computed")
        if counted != computed:
            raise SystemExit("what is computed for torch.distributed.pipelining is not what it sends")
        rows.append({"net": net, "split": list(split), "counted_bytes": counted, "computed_bytes": computed})
    return rows
