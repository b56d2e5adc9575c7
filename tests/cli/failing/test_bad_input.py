"""Bad input ends in one message that says what, where, the numbers and what to do; exit code 2; nothing left behind.

What goes wrong in processes is in test_failures.py.
"""

import re
import socket

import pytest

from nfold.planning.choosing.strategies import STRATEGY_NAMES
from nfold.runtime.data.chunk_loader import sample_order

STEP_OF_399 = 1 + list(sample_order(400, epoch=0, seed=0)).index(399) // 16
"""Of the last of 400 items, 16 at a time."""


@pytest.mark.parametrize(
    ("arguments", "fragments"),
    [
        (["train", "nope.py"], ["the script nope.py does not exist", "nfold train FILE.py"]),
        (["train", "."], ["the script . is a folder"]),
        (["train", "faulty.py", "--strategy", "rnig"], ["unknown strategy 'rnig'", ", ".join(STRATEGY_NAMES)]),
        (
            ["compare", "faulty.py", "--strategies", "ring,sp"],
            ["unknown strategy 'sp'", ", ".join(STRATEGY_NAMES)],
        ),
        (["train", "faulty.py", "-n", "2", "--servers", "3"], ["--servers 3 with -n 2:", "Ask for 2 at most"]),
        (
            ["train", "faulty.py", "-n", "2", "--servers", "1", "--strategy", "ring"],
            ["--servers 1 needs --strategy ps"],
        ),
        (["train", "faulty.py", "-n", "2", "--strategy", "single"], ["one worker, but -n asks for 2"]),
        (
            ["train", "faulty.py", "-n", "4", "--chunks", "2", "--strategy", "ring"],
            ["4 workers cannot share 2 chunks", "--chunks 4"],
        ),
        (
            ["train", "faulty.py", "--protect", "never"],
            ["--protect never: it must be auto, off, or the most steps that a lost host may cost, as in 20"],
        ),
        (["train", "faulty.py", "--protect", "9" * 5000], ["--protect 999", "(5000 characters): it must be auto"]),
        (["train", "faulty.py", "--protect", "5"], ["--protect 5 is for hosts that come and go. Add --nodes MIN:MAX"]),
        (
            ["train", "faulty.py", "--listen", "127.0.0.1:0", "--nodes", f"1:{'9' * 20}"],
            [f"--nodes 1:{'9' * 20}: a run has at most 4096 hosts"],
        ),
        (["train", "faulty.py", "--listen", f"127.0.0.1:{'9' * 5000}", "--nodes", "1:2"], ["--listen 127.0.0.1:999"]),
        (
            ["train", "faulty.py", "--on", "local", "--nodes", "1:65", "--strategy", "ring"],
            ["agents on this machine: 65 are asked for, and 64 are the most"],
        ),
        (["scale", "9" * 5000, "1"], [f"there is no run {'9' * 40}.. (5000 characters)."]),
        (["scale", "1", "9" * 5000], ["(5002 characters) is no number of hosts"]),
        (["scale", "1", "٢"], ["'٢' is no number of hosts"]),
        (
            ["join", "127.0.0.1:1", "--token-file", "none", "--name", "evil\n\x1b[31mred"],
            [r"--name 'evil\n\x1b[31mred': the name of a host is one line of printable characters"],
        ),
        (["join", f"127.0.0.1:{'9' * 5000}", "--token-file", "none"], ["is no address"]),
        (["train", "faulty.py", "--hosts-last", "x"], ["--hosts-last x: it must be a time of more than 0"]),
        (["train", "faulty.py", "-n", "0"], ["workers is 0", "at least 1"]),
        (
            ["train", "faulty.py", "--exact", "--strategy", "ssp"],
            ["--exact and --strategy ssp: each gradient is applied"],
        ),
        (["train", "faulty.py", "--exact", "--device", "cuda"], ["kernels of CUDA add in an order", "--device cpu"]),
        (
            ["train", "faulty.py", "--exact", "--place", "lp"],
            ["--exact and --place lp: chunks of a batch are what lives"],
        ),
        (["train", "faulty.py", "--steps", "0"], ["steps is 0", "at least 1"]),
        (["train", "faulty.py", "--seed", "9" * 23], ["--seed 99999999999999999999999: it must be", "2^64 - 1"]),
        (["train", "faulty.py", "--port", "65536"], ["port is 65536", "65535"]),
        (["train", "faulty.py", "--prometheus", "x"], ["--prometheus x: it must be a port", "HOST:PORT"]),
        (
            ["train", "steady.py", "--prometheus", "192.0.2.1:0"],
            ["--prometheus 192.0.2.1:0: cannot listen on 192.0.2.1"],
        ),
        (["train", "faulty.py", "--dashboard", "65536"], ["--dashboard 65536: the last port is 65535"]),
        (["train", "faulty.py", "--tensorboard", ""], ["--tensorboard '': a folder needs a name"]),
        (["train", "faulty.py", "--tensorboard", "faulty.py"], ["cannot write to", "faulty.py/faulty-1: Not a dir"]),
        (["compare", "faulty.py", "--prometheus", "0"], ["there is no flag --prometheus"]),
        (["compare", "faulty.py", "--strategies", ","], ["--strategies names none", ", ".join(STRATEGY_NAMES)]),
        (["compare", "faulty.py", "-n", "1,two"], ["-n 1,two", "whole numbers"]),
        (["compare", "faulty.py", "-n", "0,1"], ["-n 0,1", "at least 1"]),
        (
            ["compare", ".", "-n", "2", "--links", "5 Mbit/s"],
            ["runs that have ended", "-n, --links would change nothing"],
        ),
        (
            ["compare", ".", "--strategies", "ps", "--servers", "1", "--steps", "3", "--no-measure"],
            ["--strategies, --servers, --steps, --no-measure would change nothing", "give a script to run"],
        ),
        (["plan", "faulty.py", "--keep", "accuracy"], ["--keep 'accuracy': it must be best:METRIC"]),
        (["plan", "faulty.py", "--checkpoint-every", "-1"], ["checkpoint_every is -1"]),
        *(
            ([verb, "faulty.py", "--out", out], words)
            for verb in ("plan", "train")
            for out, words in (
                ("faulty.py", ["cannot make the run folder faulty.py: File exists. Use another --out"]),
                ("faulty.py/run", ["cannot make the run folder faulty.py/run: Not a directory"]),
                (".", [". is no run, and it is not empty: it holds"]),
            )
        ),
        (["plan", "faulty.py", "--out", "/proc/self"], ["cannot write to /proc/self", "another --out"]),
        (["train", "faulty.py", "--out", "/proc/self"], ["cannot write to /proc/self", "another --out"]),
        (["train"], ["a script to train, or --resume RUN"]),
        (
            [],
            [
                "no command was given. The commands are demo, train, resume, compare, plan, why, report, ps, top, "
                "logs, scale, stop, emulate",
                "--help",
            ],
        ),
        (["--foo"], ["there is no flag --foo. The commands are demo, train,", "see: nfold --help"]),
        (["train", "faulty.py", "--foo", "3"], ["there is no flag --foo. See what train", "nfold train --help"]),
        (["--foo", "why", "."], ["there is no flag --foo. See what why understands: nfold why --help"]),
        (["plan", "faulty.py", "b.py"], ["'b.py' says nothing here", "nfold plan --help"]),
        (["train", "faulty.py", "--resume", "runs/x"], ["there is no run folder runs/x"]),
        (["train", "--resume", "runs/x"], ["there is no run folder runs/x"]),
        (["resume", "runs/x"], ["there is no run folder runs/x"]),
        (["resume", "."], [". holds no run", "job.json"]),
        (
            ["train", "faulty.py", "--on", "local", "--nodes", "2", "--hold-for", "5m"],
            ["--hold-for 5m is for hosts that come and go: --on or --listen"],
        ),
        (["train", "--resume", "."], [". holds no run", "job.json"]),
        (["why", "runs/x"], ["there is no run folder runs/x"]),
        (["why", "."], [". holds no run", "report.json"]),
        (["train", "faulty.py", "--out", ""], ["--out ''", "Leave out --out"]),
        (["compare", "faulty.py", "--out", ""], ["--out ''", "Leave out --out"]),
        (
            ["train", "faulty.py", "--out", "n" * 300],
            ["cannot make the run folder nnn", "name too long", "another --out"],
        ),
        (["why", "n" * 300], ["there is no run folder nnn"]),
        (["train", "n" * 300], ["the script nnn", "does not exist"]),
        (["train", "faulty.py", "--out", "faulty.py"], ["cannot make the run folder faulty.py", "another --out"]),
    ],
    ids=" ".join,
)
def test_what_is_refused_before_any_rank_starts(nfold, tmp_path, monkeypatch, arguments, fragments):
    monkeypatch.setattr("nfold.launch.local_launcher.LocalLauncher.start", lambda *_: pytest.fail("a rank was started"))
    before = sorted(tmp_path.iterdir())

    nfold(*arguments).check_explained(*fragments)

    assert sorted(tmp_path.iterdir()) == before, "no folder for runs either"


@pytest.mark.parametrize(
    ("arguments", "fragments"),
    [
        (["train", "faulty.py", "-n", "3"], ["3 ranks need about 1.0 GiB"]),
        (["train", "faulty.py", "-n", "3", "--servers", "1", "--strategy", "ps"], ["4 ranks need about 1.3 GiB"]),
        (["plan", "faulty.py", "-n", "3"], ["3 ranks need about 1.0 GiB"]),
        (["compare", "faulty.py", "-n", "1,2,4"], ["4 ranks need about 1.3 GiB"]),
    ],
    ids=" ".join,
)
def test_more_ranks_than_memory_holds_are_refused_before_any_starts(nfold, tmp_path, monkeypatch, arguments, fragments):
    monkeypatch.setattr("nfold.machine.memory_check.available_bytes", lambda text: 10**9)
    monkeypatch.setattr("nfold.launch.local_launcher.LocalLauncher.start", lambda *_: pytest.fail("a rank was started"))

    nfold(*arguments).check_explained(*fragments, "to start (350 MB each)", "0.9 GiB free", "At most 2 would fit")

    assert not (tmp_path / "runs").exists()


def test_ranks_that_are_threads_need_no_room_of_their_own(nfold, monkeypatch):
    monkeypatch.setattr("nfold.machine.memory_check.available_bytes", lambda text: 10**8)
    planned = nfold("plan", "steady.py", "-n", "2", "--debug", "--json")
    assert planned.code == 0, planned.err


def test_a_port_in_use(nfold, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        nfold("train", "faulty.py", "--port", port).check_explained(f"port {port}: Address already in use", "--port")

    assert not list(tmp_path.glob("runs/*"))


IN_A_STEP = [
    (
        "item 399",
        [f"at step {STEP_OF_399}: item 399 of train_data() raised", "OSError: truncated scan", "faulty.py, line"],
    ),
    (
        "nan item 399",
        [
            f"at step {STEP_OF_399}: the loss of",
            "is nan, since the data are: item 399 of train_data() (1 of the chunk's 8) holds NaN. Repair",
        ],
    ),
    (
        "label of item 399",
        [f"at step {STEP_OF_399}: IndexError: Target 5 is out of bounds", "Chunk ", " to 5 (item 399)."],
    ),
    (
        "label of item 399, then none",
        [f"at step {STEP_OF_399}: IndexError: Target 5 is out of bounds", "faulty.py, line"],
    ),
    ("nan", ["at step 3: the loss of chunk ", " is inf", "A smaller learning rate"]),
]


@pytest.mark.parametrize(
    ("fault", "fragments"),
    [
        ("import", ["importing", "faulty.py", "RuntimeError: no licence", "line 24: raise RuntimeError"]),
        ("exit", ["importing", "faulty.py", "SystemExit: usage: faulty.py FILE", "sys.exit("]),
        ("program raises", ["program() raised ZeroDivisionError: division by zero", "faulty.py, line", "1 / 0"]),
        ("loss", ["the loss loss refused outputs float32[", ", 5] and targets int64[", "faulty.py, line"]),
        ("empty", ["train_data() returned an empty dataset", "0 samples"]),
        ("item 0", ["item 0 of ", "OSError: truncated scan", "faulty.py, line"]),
        ("batch of 0", ["Program(batch_size=0)", "at least 1"]),
        ("batch of 401", ["batch_size is 401", "only 400 samples", "at most 400"]),
        *IN_A_STEP,
    ],
)
def test_what_a_program_can_have_wrong(nfold, tmp_path, monkeypatch, fault, fragments):
    monkeypatch.setenv("FAULT", fault)

    nfold("train", "faulty.py", "-n", "2", "--strategy", "ring", "--debug").check_explained(*fragments)

    trained = fault in dict(IN_A_STEP)
    assert bool(list(tmp_path.glob("runs/*"))) == trained, "nothing is left where nothing was trained"


@pytest.mark.exhaustive
@pytest.mark.processes
@pytest.mark.parametrize(("fault", "fragments"), IN_A_STEP)
def test_ranks_that_are_processes_say_the_same(shell, fault, fragments):
    shell.environment["FAULT"] = fault
    shell.run("train", "faulty.py", "-n", "2", "--strategy", "ring").check_explained(*fragments)
    assert shell.processes() == []


@pytest.mark.parametrize("arguments", [(), ("--debug",)], ids=["processes", "threads"])
def test_a_page_of_error_text_is_one_line_and_the_log_has_the_rest(nfold, tmp_path, monkeypatch, arguments):
    monkeypatch.setenv("FAULT", "page")

    result = nfold("train", "faulty.py", *arguments)

    result.check_explained(
        "raised RuntimeError: line 0 of it line 1 of it", ".. (the log has the rest) (", "faulty.py, line"
    )
    assert re.fullmatch(r"nfold: importing .*\nThe log has the .*: runs/faulty-1/log.txt\n", result.message)
    assert "line 99 of it" in (tmp_path / "runs" / "faulty-1" / "log.txt").read_text()
    (tmp_path / "runs" / "faulty-1" / "log.txt").unlink()


def test_a_port_of_another_program_is_told_before_anything_is_started(nfold, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        for flag in ("--prometheus", "--dashboard"):
            result = nfold("train", "faulty.py", flag, port)
            result.check_explained(f"{flag} {port}: cannot listen on 127.0.0.1, port {port}: Address already in use")
    assert not list(tmp_path.glob("runs/*"))


def test_a_script_is_no_port(nfold):
    result = nfold("train", "--dashboard", "faulty.py")
    result.check_explained("--dashboard faulty.py: this is no number. FILE.py or RUN stands before --dashboard.")


def test_only_what_a_failed_job_made_is_cleared_away(nfold, tmp_path, monkeypatch):
    monkeypatch.setenv("FAULT", "import")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "log.txt").write_text("of another tool\n")

    nfold("train", "faulty.py", "--debug", "--out", "mine").check_explained("no licence")
    nfold("train", "faulty.py", "--debug", "--out", "new").check_explained("no licence")
    nfold("compare", "faulty.py", "--debug", "--out", "several").check_explained("no licence")
    nfold("compare", "faulty.py", "--debug").check_explained("no licence")

    assert (tmp_path / "mine" / "log.txt").read_text().startswith("of another tool\n")
    assert not (tmp_path / "new").exists()
    nfold("train", "faulty.py", "--debug", "--out", "deep/down").check_explained("no licence")
    assert not (tmp_path / "several").exists()
    assert not (tmp_path / "deep").exists()
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("name", ["model.safetensors", "notes.md"])
def test_a_folder_with_files_of_somebody_else_is_left_alone(nfold, tmp_path, name):
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / name).write_text("precious\n")
    (tmp_path / "own" / "plots").mkdir()

    refused = nfold("train", "steady.py", "--debug", "--out", "own")

    refused.check_explained(f"own is no run, and it is not empty: it holds {name}, plots. ", "Use another --out")
    assert (tmp_path / "own" / name).read_text() == "precious\n"
    assert sorted(path.name for path in (tmp_path / "own").iterdir()) == sorted([name, "plots"])


def test_commands_to_type_can_be_typed_where_names_have_spaces(nfold, tmp_path):
    (tmp_path / "steady.py").rename(tmp_path / "my program.py")

    ring = ("-n", "2", "--strategy", "ring")
    assert nfold("train", "my program.py", *ring, "--debug", "--steps", "2", "--out", "my run").code == 0
    nfold("train", "my program.py", "--debug", "--out", "my run").check_explained(
        "or --resume 'my run' with more --steps"
    )
    assert f"'{tmp_path}/my program.py'" in nfold("why", "my run").out
    for written_last in ("report.json", "model.safetensors"):
        (tmp_path / "my run" / written_last).unlink()
    nfold("why", "my run").check_explained("go on with: nfold train --resume 'my run'")
    compared = nfold("compare", "my program.py", "--debug", "--steps", "2", "-n", "1", "--out", "my runs")
    assert "nfold why 'my runs/single-1'" in compared.out


def test_an_item_of_a_dataset_that_reads_several_at_once_is_named(nfold, monkeypatch):
    monkeypatch.setenv("FAULT", "item 399")
    monkeypatch.setenv("together", "1")

    nfold("train", "faulty.py", "--debug").check_explained("item 399 of train_data() raised OSError: truncated scan")


def test_a_script_without_the_function(nfold):
    nfold("train", "faulty.py:pogrom", "--debug").check_explained("has no function 'pogrom'", "faulty.py:FUNCTION")


def test_a_function_that_returns_no_program(nfold):
    nfold("train", "faulty.py:nothing", "--debug").check_explained("must return nfold.Program, got None")


def test_fewer_chunks_than_workers(nfold):
    ring = ("train", "faulty.py", "-n", "3", "--strategy", "ring", "--debug")
    nfold(*ring).check_explained("3 workers cannot share 2 chunks", "--chunks 3", "such as pipeline")


def test_ranks_that_hold_different_data_are_refused_and_the_item_is_named(nfold, tmp_path):
    script = tmp_path / "steady.py"
    different = "lambda: load(SAMPLES, int.from_bytes(os.urandom(4)))"
    script.write_text("import os\n" + script.read_text().replace("lambda: load(SAMPLES, 1)", different))
    result = nfold("train", "steady.py", "-n", "2", "--strategy", "ring", "--debug")
    assert result.code == 2
    assert result.message.startswith("nfold: ranks 0 and 1 hold different data: item 0 of train_data() has the checks")


def test_ranks_that_compute_different_things_are_refused_and_the_module_is_named(nfold, tmp_path):
    (tmp_path / "noisy.py").write_text(
        "import os\nfrom dataclasses import replace\nimport torch\nimport steady\n\n"
        "class Noise(torch.nn.Module):\n"
        "    def forward(self, x):\n"
        "        own = torch.Generator().manual_seed(int.from_bytes(os.urandom(4)))\n"
        "        return x + torch.rand(x.shape, generator=own)\n\n"
        "def program():\n"
        "    before = steady.program()\n"
        "    return replace(before, model=lambda: torch.nn.Sequential(before.model(), Noise()))\n"
    )
    result = nfold("train", "noisy.py", "-n", "2", "--strategy", "ring", "--debug")
    assert result.code == 2
    assert "ranks 0 and 1 compute different things from equal weights, samples and seeds" in result.message
    assert "the output of the 1 (Noise) differs first" in result.message


def test_a_script_that_starts_a_job_when_it_is_imported(nfold, tmp_path):
    (tmp_path / "eager.py").write_text("import nfold\nfrom faulty import program\nnfold.train(program)\n")

    nfold("train", "eager.py", "--debug").check_explained("line 3: nfold.train(program)", "__main__")


def test_a_folder_that_holds_a_run_is_not_overwritten(nfold, tmp_path):
    assert nfold("train", "faulty.py", "--debug", "--steps", "2", "--out", "mine").code == 0
    before = {path: path.read_bytes() for path in (tmp_path / "mine").iterdir()}

    nfold("train", "faulty.py", "--debug", "--out", "mine").check_explained(
        "mine already holds a run", "--resume mine", "another --out"
    )
    nfold("train", "--resume", "mine").check_explained(
        "the run in mine is complete: 2 of 2 steps are done, and mine/model.safetensors holds the model", "more --steps"
    )
    nfold("train", "--resume", "mine", "--steps", "1").check_explained(
        "--steps 1: the run in mine has done 2 steps already, and mine/model.safetensors holds the model"
    )
    nfold("train", "--resume", "mine", "--steps", "4", "--chunks", "4").check_explained(
        "begun with 2 chunks", "Leave out --chunks 4"
    )
    nfold("train", "--resume", "mine", "--steps", "4", "--seed", "4").check_explained("Leave out --seed 4")
    nfold("train", "--resume", "mine", "--steps", "4", "--out", "other").check_explained("Leave out --out other")
    nfold("train", "--resume", "mine", "--steps", "4", "-n", "3", "--strategy", "ps").check_explained(
        "begun with 2 chunks", "Use -n 2 or fewer"
    )

    assert {path: path.read_bytes() for path in (tmp_path / "mine").iterdir()} == before


@pytest.mark.parametrize(
    "ranks",
    [(), pytest.param(("-n", "2", "--strategy", "ring"), marks=pytest.mark.exhaustive)],
    ids=["same ranks", "other ranks"],
)
def test_a_run_goes_on_only_with_the_program_that_it_was_begun_with(nfold, tmp_path, monkeypatch, ranks):
    assert nfold("train", "steady.py", "--debug", "--steps", "2", "--out", "mine").code == 0
    before = {path: path.read_bytes() for path in (tmp_path / "mine").iterdir() if path.name != "log.txt"}
    script = (tmp_path / "steady.py").read_text()

    def resume(old, new):
        (tmp_path / "steady.py").write_text(script.replace(old, new))
        return nfold("train", "--resume", "mine", "--steps", "4", "--debug", "--json", *ranks)

    resume("numbers.BATCH_SIZE", "19").check_explained(
        "begun with a batch size of 16, and the program has a batch size of 19 now"
    )
    resume("load(SAMPLES", "load(90").check_explained(
        "begun with 76 samples in train_data(), and the program has 90 samples in train_data() now"
    )
    resume("numbers.HIDDEN", "17").check_explained(
        "model() does not build the module of which the checkpoint of step 2 was taken",
        "size mismatch for inward.weight",
    )
    refused = resume("SGD(params, lr=0.005, momentum=0.9)", "Adam(params)")
    assert "go on with" not in refused.err, "that is what was refused"
    refused.check_explained(
        "begun with the optimizer SGD, and the program has Adam now. Put it back, or begin a new run"
    )
    for new, now in (
        ("clip_norm=0.5, chunks=4", "clip_norm=0.5"),
        ("autocast='bfloat16', chunks=4", "autocast='bfloat16'"),
        ("scheduler=lambda own: lr_scheduler.ConstantLR(own), chunks=4", "a scheduler"),
    ):
        resume("chunks=4", new).check_explained(f"and the program has {now} now. Put it back")

    assert before == {path: path.read_bytes() for path in (tmp_path / "mine").iterdir() if path.name != "log.txt"}
    went_on = resume("lr=0.005", "lr=0.5")
    assert went_on.code == 0
    assert "note: the optimizer goes on with the checkpoint's lr 0.005 (not 0.5), whatever the" in went_on.err


def test_damaged_documents_are_named(nfold, tmp_path):
    assert nfold("train", "faulty.py", "--debug", "--steps", "2", "--out", "mine").code == 0
    (tmp_path / "mine" / "report.json").write_text('{"schema": "nfold.Report/1"')
    (tmp_path / "mine" / "checkpoint.safetensors").write_bytes(b"12345678 this is no checkpoint")

    nfold("why", "mine").check_explained("mine/report.json: not JSON")
    nfold("train", "--resume", "mine", "--steps", "4").check_explained("the checkpoint is damaged")


def test_a_working_directory_that_was_removed(nfold, tmp_path, monkeypatch):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()

    nfold("train", "../steady.py").check_explained("the working directory does not exist any more. Change to one")
