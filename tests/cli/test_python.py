"""The same verbs from Python."""

import contextlib
import importlib.util
import json
import os
import sys
import threading
from pathlib import Path

import pytest
import safetensors.torch
import torch

import nfold as library
from nfold.runtime.checkpoint.state_file import StoredState


@pytest.fixture
def script(nfold, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path / "steady.py"


@pytest.mark.parametrize("name", library.__all__)
def test_every_name_of_the_package_is_found_where_it_lives(name):
    assert getattr(library, name) is not None


@pytest.mark.processes
def test_leaving_the_loop_ends_the_run(script):
    """Encrypted, which must change nothing else."""
    losses = []
    for step in library.start(script, workers=2, strategy="ring", out="mine", tls=True):
        losses.append(step.loss)
        assert step.step == len(losses)
        assert len(_ranks_of_this_process()) == 2
        if step.step == 3:
            break

    assert _ranks_of_this_process() == []
    assert "traffic between processes is encrypted (TLS 1.3" in Path("mine/log.txt").read_text()
    run = library.resume("mine", steps=4, debug=True)
    assert [line["loss"] for line in run.history if not line["metrics"]][:3] == losses
    assert [line["step"] for line in run.history if not line["metrics"]] == [1, 2, 3, 4], (
        "nothing ran ahead of the loop"
    )


@pytest.mark.processes
def test_the_loop_over_a_function_of_a_script_may_go_on_in_another_thread(script):
    steps = library.start(_import(script).program, steps=3)
    first: list[int] = []
    other = threading.Thread(target=lambda: first.append(next(steps).step))
    other.start()
    other.join(60)
    assert not other.is_alive()

    assert len(_ranks_of_this_process()) == 1
    assert [*first, *(step.step for step in steps)] == [1, 2, 3], "the rank outlives the thread that started it"
    assert _ranks_of_this_process() == []
    assert library.why("runs/steady-1").world_size == 1, "its name is the script's"


@pytest.mark.processes
@pytest.mark.parametrize("debug", [False, pytest.param(True, marks=pytest.mark.exhaustive)])
def test_ranks_compute_with_the_threads_of_their_plan(script, tmp_path, monkeypatch, debug):
    """One rank's share is the whole machine; here one thread is about as fast."""
    cores = len(os.sched_getaffinity(0))
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr("nfold.planning.inputs.facts.ABOUT_AS_FAST", 1e9)
    with _threads(cores):
        run = library.train(_counting(tmp_path), steps=1, evaluate=False, debug=debug)
        assert torch.get_num_threads() == cores

    assert run.plan.threads == (1,), "the fewest measured"
    assert _seen(tmp_path)[-1] == 1
    assert cores in _seen(tmp_path), "it was measured with all cores too"


@pytest.mark.exhaustive
@pytest.mark.processes
def test_ranks_have_no_more_threads_than_the_environment_allows(script, tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")

    assert library.train(_counting(tmp_path), steps=1, evaluate=False).plan.threads == (1,)

    assert set(_seen(tmp_path)) == {1}


def test_ranks_have_no_more_threads_than_the_script_allows(script, tmp_path):
    counting = _counting(tmp_path)
    counting.write_text(f"import torch\ntorch.set_num_threads(1)\n{counting.read_text()}")
    with _threads(2):
        assert library.train(counting, steps=1, evaluate=False, debug=True).plan.threads == (1,)
        assert torch.get_num_threads() == 2, "the limit is the script's, not this process's"

    assert set(_seen(tmp_path)) == {1}


def _counting(folder):
    """Write a script whose loss notes the threads that it is computed with."""
    counting = folder / "counting.py"
    counting.write_text(
        "from dataclasses import replace\n"
        "import steady, torch\n"
        "def loss(outputs, targets):\n"
        f"    with open({str(folder / 'seen')!r}, 'a') as file: print(torch.get_num_threads(), file=file)\n"
        "    return torch.nn.functional.cross_entropy(outputs, targets)\n"
        "def program(): return replace(steady.program(), loss=loss)\n"
    )
    return counting


def _seen(folder):
    return [int(line) for line in (folder / "seen").read_text().split()]


@contextlib.contextmanager
def _threads(count):
    """Other tests of this process may have limited them."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def test_an_error_in_the_loop_ends_the_run(script):
    def fail():
        for step in library.start(script, debug=True):
            raise ZeroDivisionError(step.loss)

    with pytest.raises(ZeroDivisionError):
        fail()

    assert library.why("runs/steady-1").strategy == "single"


ENDS_EARLY = """
import nfold
steps = nfold.start("steady.py", strategy="single", debug={debug}, out="mine")
for step in steps:
    if step.step == 2:
        {leaves}
print("the script has ended")
"""


@pytest.mark.processes
@pytest.mark.parametrize(
    ("debug", "leaves", "code"),
    [(False, "1 / 0", 1), pytest.param(True, "break", 0, marks=pytest.mark.exhaustive)],
    ids=["a script fails", "a script ends"],
)
def test_the_end_of_a_script_ends_the_run_that_it_holds(shell, debug, leaves, code):
    (shell.folder / "ends_early.py").write_text(ENDS_EARLY.format(debug=debug, leaves=leaves))

    done = shell.run_script("ends_early.py")

    assert done.code == code, done.err
    assert ("the script has ended" in done.out) == (code == 0)
    assert "Exception ignored" not in done.err
    assert library.why(shell.folder / "mine").strategy == "single"
    assert '"step": 2,' in (shell.folder / "mine" / "history.jsonl").read_text().splitlines()[-1]
    assert (shell.folder / "mine" / "model.safetensors").exists()


def test_a_loop_that_is_never_begun_leaves_nothing(script):
    steps = [library.start(script, debug=True), library.start(script, debug=True, out="mine")]
    assert not Path("runs").exists()
    assert not Path("mine").exists()
    steps.clear()
    assert not Path("mine").exists()


@pytest.mark.parametrize("workers", [1, 2])
def test_leaving_the_loop_after_a_step_leaves_the_weights_of_so_many_steps(script, workers):
    """Whatever the loop waits for: here for the evaluation's lines to be in the history."""
    wishes = {"workers": workers, "strategy": "single" if workers == 1 else "ring", "debug": True, "chunks": 4}
    steps = library.start(script, out="mine", **wishes)
    for step in steps:
        if step.metrics and step.metrics["accuracy"] >= 0:
            break
    left = steps.stop()

    assert step.step == 5, "an epoch has five"
    assert step.metrics.keys() == {"test_loss", "accuracy"}
    assert left.model == library.train(script, steps=5, out="whole", **wishes).model
    saved = library.resume("mine", steps=7, debug=True)
    assert [line["step"] for line in saved.history if not line["metrics"]] == [1, 2, 3, 4, 5, 6, 7]
    assert saved.model == library.train(script, steps=7, out="longer", **wishes).model


def test_metrics_come_with_the_step_that_made_them_and_are_in_the_history_by_then(script):
    seen = {}
    for step in library.start(script, debug=True, steps=7, out="mine"):
        lines = [json.loads(line) for line in Path("mine/history.jsonl").read_text().splitlines()]
        assert max(line["step"] for line in lines) == step.step
        assert [line["metrics"] for line in lines if line["step"] == step.step][-1] == dict(step.metrics)
        seen[step.step] = bool(step.metrics)
    assert seen == {1: False, 2: False, 3: False, 4: False, 5: True, 6: False, 7: True}


def test_a_loop_keeps_a_checkpoint_when_it_wants_one(script):
    steps = library.start(script, debug=True, steps=3, checkpoint_every=0, out="mine")
    with pytest.raises(library.NfoldError, match="the run has not begun"):
        steps.checkpoint()
    for step in steps:
        if step.step != 1:
            path = steps.checkpoint()
            assert StoredState.open(path).step == step.step, "of the last step too"
    with pytest.raises(library.NfoldError, match="the run has ended"):
        steps.checkpoint()
    assert steps.stop().history[-1]["step"] == 3


def test_a_loop_that_goes_on_after_a_checkpoint_learns_the_same(script):
    steps = library.start(script, debug=True, steps=4, checkpoint_every=0, out="mine")
    for _ in steps:
        steps.checkpoint()
    assert steps.stop().model == library.train(script, debug=True, steps=4, out="whole").model


@pytest.mark.parametrize(
    ("workers", "strategy"),
    [(1, "single"), pytest.param(2, "ring", marks=pytest.mark.exhaustive), (2, "pipeline"), (2, "ssp")],
)
def test_the_model_of_the_best_evaluation_is_kept_beside_the_last(script, workers, strategy):
    wishes = {"workers": workers, "strategy": strategy, "debug": True, "chunks": 4}
    run = library.train(script, keep="best:test_loss:max", out="mine", steps=15, **wishes)

    found = [(line["metrics"]["test_loss"], line["step"]) for line in run.history if line["metrics"]]
    value = max(found)[0]
    step = min(step for loss, step in found if loss == value)
    assert run.best == {"step": step, "metric": "test_loss", "value": value}
    if strategy != "ssp":
        whole = library.train(script, steps=step, out="whole", **wishes)
        best = safetensors.torch.load_file("mine/best.safetensors")
        assert best.keys() == whole.state_dict().keys()
        assert all(torch.equal(best[name], each) for name, each in whole.state_dict().items())


def test_a_run_that_goes_on_remembers_its_best(script):
    wishes = {"debug": True, "out": "mine"}
    assert library.train(script, keep="best:test_loss:max", steps=5, **wishes).best["step"] == 5
    again = library.resume("mine", steps=15, debug=True)
    whole = library.train(script, keep="best:test_loss:max", steps=15, debug=True, out="whole")
    assert again.best == whole.best
    assert Path("mine/best.safetensors").read_bytes() == Path("whole/best.safetensors").read_bytes()


@pytest.mark.parametrize("ends", ["is complete", "is resumed"])
def test_a_best_model_that_a_kill_has_left_out_is_kept_when_the_run_goes_on(script, ends):
    wishes = {"debug": True, "keep": "best:test_loss:max", "seed": 1}
    run = library.train(script, out="mine", steps=10, **wishes)
    assert run.best["step"] == 10, "the last evaluation is the best"
    best = Path("mine/best.safetensors")
    whole = best.read_bytes()
    earlier = library.train(script, out="earlier", steps=5, **wishes)
    for left in (None, (earlier.folder / best.name).read_bytes()):
        best.unlink() if left is None else best.write_bytes(left)
        if ends == "is complete":
            assert library.train(script, out="mine", go_on=True, debug=True).was_complete
        else:
            with pytest.raises(library.NfoldError, match="complete"):  # by then it is there
                library.resume("mine", debug=True)
        assert best.read_bytes() == whole


def test_to_keep_the_best_at_what_is_no_metric_is_refused(script):
    for verb in (library.train, library.plan):
        with pytest.raises(ValueError, match=r"no metric 'acuracy'.* The program has: accuracy, test_loss"):
            verb(script, keep="best:acuracy", debug=True)
    assert not Path("runs").exists()


def test_who_stops_a_loop_that_played_nothing_is_told(script):
    with pytest.raises(library.NfoldError, match="played no step"):
        library.start(script, debug=True).stop()
    assert not Path("runs").exists()


def test_a_second_loop_goes_on_where_the_first_was_left(script):
    steps = library.start(script, debug=True, steps=4)
    for step in steps:
        if step.step == 2:
            break
    assert [step.step for step in steps] == [3, 4]


def test_a_loop_to_the_end(script):
    steps = list(library.start(script, debug=True, steps=4))

    assert [step.step for step in steps] == [1, 2, 3, 4]
    assert [step.epoch for step in steps] == [1, 1, 1, 1]


def test_a_path_a_name_and_a_program_train_alike(script):
    module = _import(script)
    by_path = library.train(script, debug=True, steps=3)
    by_name = library.train(f"{script}:program", debug=True, steps=3)
    by_program = library.train(module.program(), steps=3)

    assert by_path.model == by_name.model == by_program.model
    assert [line["loss"] for line in by_path.history] == [line["loss"] for line in by_program.history]
    assert by_path.trace.parts
    assert by_path.report.verdict.text
    plain = module.Net()
    plain.load_state_dict(by_path.state_dict())
    assert plain.again.weight is plain.outward.weight
    torch.testing.assert_close(plain.state_dict()["norm.running_mean"], by_path.state_dict()["norm.running_mean"])


def test_a_function_that_workers_could_not_find_is_refused(script):
    with pytest.raises(library.NfoldError, match="not a top-level function of a file"):
        library.train(lambda: None)


def test_errors_are_exceptions_with_the_same_text(script):
    with pytest.raises(ValueError, match="unknown strategy 'best'"):
        library.train(script, strategy="best")


def test_a_run_that_is_still_going_on_cannot_be_resumed_or_overwritten(script):
    job = library.start(script, debug=True, out="mine")
    next(job)

    with pytest.raises(library.NfoldError, match="another job is writing to mine"):
        library.resume("mine")
    with pytest.raises(library.NfoldError, match="another job is writing to mine"):
        library.train(script, out="mine")

    job.close()
    assert library.resume("mine", steps=2, debug=True).report


def _ranks_of_this_process() -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # gone
            if int(fields[1]) == os.getpid() and "nfold.verbs.ranks.rank_process" in (entry / "cmdline").read_text():
                found.append(int(entry.name))
    return found


def _import(script: Path):
    specification = importlib.util.spec_from_file_location("steady", script)
    module = importlib.util.module_from_spec(specification)
    sys.modules.pop("numbers_of_this_program", None)
    specification.loader.exec_module(module)
    return module


@pytest.mark.parametrize("case", ["good", "raises"])
def test_no_thread_outlives_a_run_of_threads(tmp_path, case):
    script = tmp_path / "tiny.py"
    script.write_text(
        "import nfold, torch\n"
        "from torch.utils.data import TensorDataset\n"
        "def model():\n"
        f"    if {case == 'raises'}: raise RuntimeError('no model today')\n"
        "    return torch.nn.Linear(2, 2)\n"
        "def program():\n"
        "    data = TensorDataset(torch.zeros(8, 2), torch.zeros(8, dtype=torch.long))\n"
        "    return nfold.Program(model=model, loss=torch.nn.functional.cross_entropy, batch_size=4,\n"
        "        optimizer=lambda p: torch.optim.SGD(p, lr=0.1), train_data=lambda: data)\n"
    )
    with contextlib.suppress(library.NfoldError):
        library.train(script, workers=2, strategy="ring", debug=True, out=tmp_path / "run")
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("nfold")]


def test_every_name_of_nfold_is_there():
    assert all(getattr(library, name) is not None for name in library.__all__)
