"""Processes that read for a rank: the same batches and errors as its own thread, and no process that outlives it."""

import os
import re
import select
import signal
import subprocess
import sys
import textwrap
from functools import partial
from pathlib import Path

import pytest
import torch

from nfold.errors import ProgramError, RunError
from nfold.launch.fork_server import ForkServer
from nfold.program import Program, ProgramSource
from nfold.runtime.data.chunk_loader import ChunkLoader, ChunkSamples
from nfold.runtime.data.loaded_program import item_checksums, load_dataset
from nfold.runtime.data.loader_process import read_for_rank
from nfold.runtime.data.loaders import LoaderPool, Loaders, unlike
from nfold.runtime.data.sample_reader import ReadPart, SampleReader
from nfold.runtime.rank.evaluation import evaluate

SEED, BATCH_SIZE, COUNT = 3, 8, 32
SCRIPT = textwrap.dedent(
    """
    import random
    import nfold, numpy, torch
    from torch.utils.data import Dataset

    class Data(Dataset):
        def __init__(self, bad=-1):
            self.offset, self.bad = torch.rand(()).item(), bad

        def __len__(self):
            return 32

        def __getitem__(self, index):
            if index == self.bad:
                raise KeyError("no such picture")
            draws = (0.0, torch.rand(()).item(), random.random(), numpy.random.rand())[index % 4]
            return torch.full((3,), index + self.offset + draws), index % 2

    class Pair:
        def __init__(self, rows):
            self.rows, self.mask = rows, rows[:, 1:]

    def joined(items):
        rows = torch.stack([row for row, _ in items]) + torch.rand(())
        return {"rows": rows, "pair": Pair(rows)}, torch.tensor([kind for _, kind in items])

    class Net(torch.nn.Linear):
        def forward(self, inputs):
            return super().forward(inputs["rows"])

    def program():
        return nfold.Program(
            model=lambda: Net(3, 2), loss=torch.nn.functional.cross_entropy,
            optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
            train_data=Data, test_data=lambda: Data(bad=99), batch_size=8, collate=joined, seed=3,
        )
    """
)


@pytest.fixture
def source(tmp_path: Path) -> ProgramSource:
    path = tmp_path / "pictures.py"
    path.write_text(SCRIPT, encoding="utf-8")
    return ProgramSource(path=path)


def data_of(program: Program, what: str = "train_data"):
    return load_dataset(getattr(program, what), what, SEED)


def server_of(source: ProgramSource) -> ForkServer:
    return ForkServer("nfold-loader", partial(read_for_rank, source))


def hired(source: ProgramSource, count: int) -> Loaders:
    server = server_of(source)  # first, as in a rank: then nothing of the program's is in it
    program = source.load()
    return Loaders(server, count, SEED, item_checksums(data_of(program), SEED, program.collate))


@pytest.mark.processes
def test_loaders_give_what_the_rank_would_read_by_itself_and_tell_what_is_wrong(source):
    loaders = hired(source, 2)
    program = source.load()
    train, test = data_of(program), data_of(program, "test_data")
    try:
        sampler = ChunkSamples(
            COUNT, BATCH_SIZE, 2, SEED, lambda epoch: [*range(epoch, 28), 1, 1, 2, 30, *range(epoch)]
        )
        own, others = SampleReader(train, SEED, program.collate), loaders.reader("train_data")
        ahead = ChunkLoader(others, sampler, (0, 1), 8)
        for step in range(8):
            ahead.begin(step)
            for chunk in (0, 1):
                (inputs, targets), part = ahead.get(step, chunk), sampler.part(step, chunk)
                wanted, kinds = own.read(part)
                assert torch.equal(inputs["rows"], wanted["rows"])
                assert torch.equal(targets, kinds)
                inputs["rows"][0, 1] = -1.0
                assert inputs["pair"].mask[0, 0] == -1.0, "what shared memory shares it still"
        ahead.close()

        together, apart = (reader.read_apart(sampler.part(0, 0), (1, 3)) for reader in (own, others))
        for (inputs, _), (wanted, _) in zip([together[0], *together[1]], [apart[0], *apart[1]], strict=True):
            assert torch.equal(inputs["rows"], wanted["rows"])

        model = program.model()
        sums = [
            evaluate(program, model, test, 0, 1, torch.device("cpu"), reader)
            for reader in (None, loaders.reader("test_data"))
        ]
        assert sums[0] == sums[1]

        wrong, messages = ReadPart([3, 99], 0, 0, 0), []
        for reader in (SampleReader(test, SEED, program.collate, "test_data"), loaders.reader("test_data")):
            with pytest.raises(ProgramError) as told:
                reader.read(wrong)
            messages.append(str(told.value))
        assert messages[0] == messages[1]
        assert re.search(
            r"item 99 of test_data\(\) raised KeyError.*pictures.py, line \d+: raise KeyError", messages[0]
        )
        assert loaders.peak_bytes > 2 * 50e6
        for process in loaders.processes:
            os.kill(process, signal.SIGKILL)
        with pytest.raises(
            RunError, match=r"\(process \d+\) was killed by signal 9 .* while it read items 3, 99 of test"
        ):
            loaders.reader("test_data").read(wrong)
    finally:
        loaders.close()
    assert not any(Path(f"/proc/{process}").exists() for process in loaders.processes)


def test_a_loader_with_other_data_is_refused():
    assert unlike({"0": 3, "9": 4}, {"0": 3, "9": 4}) == ""
    assert "item 9 differs" in unlike({"0": 3, "9": 4}, {"0": 3, "9": 5})
    assert "their number differs" in unlike({"0": 3, "9": 4}, {"0": 3, "8": 4})


@pytest.mark.processes
def test_a_loader_ends_with_its_rank_however_that_ends(source):
    code = (
        "import sys; from functools import partial; from pathlib import Path; from nfold.program import ProgramSource; "
        "from nfold.launch.fork_server import ForkServer; from nfold.runtime.data.loader_process import read_for_rank; "
        "from nfold.runtime.data.loaders import Loaders; "
        f"server = ForkServer('loader', partial(read_for_rank, ProgramSource(path=Path({str(source.path)!r})))); "
        f"loaders = Loaders(server, 1, {SEED}, {{}}); "
        "print(loaders.processes[0], flush=True); sys.stdin.read()"
    )
    rank = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    loader = os.pidfd_open(int(rank.stdout.readline()))
    rank.kill()
    rank.communicate()
    poll = select.poll()
    poll.register(loader, select.POLLIN)
    assert poll.poll(30_000), "the loader lives on"
    os.close(loader)


def test_ranks_that_are_threads_and_programs_that_want_none_have_no_loaders(source):
    for loader_pool in (LoaderPool(None), LoaderPool(server_of(source))):
        loader_pool.wanted(0 if loader_pool._server else 2, SEED, {})
        assert loader_pool.hired("train_data") is None
        assert loader_pool.peak_bytes == 0
        loader_pool.close()
