"""Finding a program in a script, and saying what is wrong with it."""

import os
import subprocess
import sys
from functools import partial
from types import SimpleNamespace

import numpy
import pytest

from nfold.core.options.averages import Averages
from nfold.errors import NfoldError, ProgramError
from nfold.node_data import local_data
from nfold.program import Program, ProgramSource, describe

FIELDS = {"model": dict, "loss": max, "optimizer": list, "train_data": list, "batch_size": 8}
SCRIPT = """
import nfold


def program():
    return nfold.Program(model=dict, loss=max, optimizer=list, train_data=list, batch_size=8, epochs=3)


def other():
    return nfold.Program(model=dict, loss=max, optimizer=list, train_data=list, batch_size=2)
"""


def script(tmp_path, text, name="train.py"):
    path = tmp_path / name
    path.write_text(text)
    return path


def a_program():
    return Program(**FIELDS)


# Where it is


def test_a_path_alone_means_the_function_program(tmp_path):
    path = script(tmp_path, SCRIPT)
    source = ProgramSource.parse(str(path))
    assert (source.path, source.function) == (path, "program")
    assert str(source) == f"{path}:program"
    assert source.load().epochs == 3


def test_a_function_may_be_named(tmp_path):
    path = script(tmp_path, SCRIPT)
    assert ProgramSource.parse(f"{path}:other").load().batch_size == 2


def test_a_relative_path_is_kept_whole(tmp_path, monkeypatch):
    path = script(tmp_path, SCRIPT)
    monkeypatch.chdir(tmp_path)
    assert ProgramSource.parse("train.py:other") == ProgramSource(path=path, function="other")
    assert ProgramSource.parse("./train.py") == ProgramSource(path=path)


@pytest.mark.parametrize("folder", ["a:b", "with space", "ünï"])
def test_odd_folders_are_no_obstacle(tmp_path, folder):
    (tmp_path / folder).mkdir()
    path = script(tmp_path / folder, SCRIPT)
    assert ProgramSource.parse(str(path)).path == path
    assert ProgramSource.parse(f"{path}:other").load().batch_size == 2


@pytest.mark.parametrize(
    "text",
    [
        "none.py",
        "none.py:program",
        "C:\\projects\\train.py",
        "C:\\projects\\train.py:program",
        "C:/projects/train.py",
        ":program",
        "train.py:",
        "~nobody-of-that-name/train.py",
        "nul\0byte.py",
        ":",
    ],
)
def test_a_script_that_is_not_there(tmp_path, monkeypatch, text):
    script(tmp_path, SCRIPT)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ProgramError, match=r"does not exist. Give the path of a Python file: nfold train FILE.py"):
        ProgramSource.parse(text)


def test_a_folder_is_no_script(tmp_path):
    with pytest.raises(ProgramError, match=f"the script {tmp_path} is a folder"):
        ProgramSource.parse(str(tmp_path))


def test_a_script_must_be_python(tmp_path):
    with pytest.raises(ProgramError, match=r"train.txt is not a Python file: its name must end in .py"):
        ProgramSource.parse(str(script(tmp_path, SCRIPT, "train.txt"))).load()


def test_a_function_of_a_file_leads_back_to_its_script():
    source = ProgramSource.of(a_program)
    assert source.path.samefile(__file__)
    assert source.function == "a_program"


@pytest.mark.parametrize("function", [lambda: None, partial(a_program), dict, len, Program.__post_init__])
def test_workers_cannot_find_what_is_no_function_of_a_file(function):
    with pytest.raises(
        ProgramError, match=r"is not a top-level function of a file. Put it there, or pass the script's"
    ):
        ProgramSource.of(function)


# What is wrong with it


def test_no_such_function(tmp_path):
    path = script(tmp_path, "x = 1\nprogramme = 2\n")
    with pytest.raises(ProgramError, match=rf"{path} has no function 'program'. Define `def program\(\) -> nfold.Pro"):
        ProgramSource(path=path).load()
    with pytest.raises(ProgramError, match="has no function 'programme'"):
        ProgramSource(path=path, function="programme").load()


def test_an_import_that_raises_shows_the_users_line(tmp_path):
    path = script(tmp_path, "import json\nnumbers = json.loads('[1,')\n")
    with pytest.raises(ProgramError) as caught:
        ProgramSource(path=path).load()
    assert str(caught.value).startswith(f"importing {path} raised JSONDecodeError: ")
    assert str(caught.value).endswith(f"({path}, line 2: numbers = json.loads('[1,'))")


def test_a_helper_beside_the_script_can_be_imported_and_its_error_is_placed(tmp_path):
    script(tmp_path, "def twice(x):\n    return 2 * x\n", "helper_of_the_script.py")
    path = script(tmp_path, "import helper_of_the_script\nx = helper_of_the_script.twice(None)\n")
    with pytest.raises(ProgramError, match=rf"raised TypeError: .* \({path}, line 2: x = helper_of_the_script"):
        ProgramSource(path=path).load()


def test_a_script_in_a_package_imports_from_it_and_from_its_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    inner = tmp_path / "outer_of_test" / "inner"
    inner.mkdir(parents=True)
    for folder in (inner.parent, inner):
        (folder / "__init__.py").touch()
    (inner.parent / "sizes.py").write_text("BATCH = 24\n")
    (inner / "beside_of_test.py").write_text("EPOCHS = 7\n")
    (inner / "colorsys.py").write_text("raise RuntimeError('taken for the one of Python')\n")
    imports = (
        "import colorsys, beside_of_test\nfrom ..sizes import BATCH\nfrom outer_of_test.inner import beside_of_test\n"
    )
    text = SCRIPT.replace("import nfold\n", f"import nfold\n{imports}").replace("=3", "=beside_of_test.EPOCHS")
    path = script(inner, text.replace("batch_size=8", "batch_size=BATCH"))

    program = ProgramSource(path=path).load()

    assert (program.batch_size, program.epochs) == (24, 7)


def test_what_is_nowhere_else_is_imported_from_the_working_directory(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    for folder in ("models_of_test", "scripts"):
        (tmp_path / folder).mkdir()
    (tmp_path / "models_of_test" / "nets.py").write_text("BATCH = 24\n")
    text = SCRIPT.replace("import nfold\n", "import nfold\nfrom models_of_test.nets import BATCH\n")
    path = script(tmp_path / "scripts", text.replace("batch_size=8", "batch_size=BATCH"))

    assert ProgramSource(path=path).load().batch_size == 24


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def program(:\n", r"raised SyntaxError: .*train.py, line 1\)"),
        ("import no_such_module_at_all\n", r"raised ModuleNotFoundError: No module named 'no_such_module_at_all' \("),
        ("raise SystemExit(3)\n", r"importing .* raised SystemExit: 3 \(.*line 1: raise SystemExit\(3\)\)"),
        ("def program():\n    assert False\n", r"program\(\) raised AssertionError \(.*train.py, line 2: assert False"),
        ("import sys\ndef program():\n    sys.exit()\n", r"program\(\) raised SystemExit"),
        ("def program():\n    return 5\n", r"program\(\) in .*train.py must return nfold.Program, got 5"),
        ("def program(x):\n    pass\n", r"program\(\) raised TypeError: program\(\) missing 1 required"),
        (
            SCRIPT.replace("batch_size=8", "batch_size=0"),
            r"^Program\(batch_size=0\): it must be a whole number of at least 1$",
        ),
        (
            SCRIPT.replace("batch_size=8", "batch_size=8, seed=1 << 64"),
            r"^Program\(seed=18446744073709551616\): it must be a whole number from -2\^63 to 2\^64 - 1",
        ),
    ],
)
def test_what_a_script_may_do_wrong(tmp_path, text, message):
    with pytest.raises(ProgramError, match=message) as caught:
        ProgramSource(path=script(tmp_path, text)).load()
    assert isinstance(caught.value, NfoldError)
    assert isinstance(caught.value, ValueError)


def test_a_script_may_define_dataclasses(tmp_path):
    text = (
        "from __future__ import annotations\nimport dataclasses\n\n@dataclasses.dataclass\nclass A:\n    x: int = 1\n"
    )
    assert ProgramSource(path=script(tmp_path, text + SCRIPT.strip().replace("import nfold", "")
        .replace("nfold.", "__import__('nfold').")), function="program").load().batch_size == 8  # fmt: skip


def test_an_error_without_a_message_or_a_users_frame():
    assert describe(ValueError()) == "ValueError"
    assert describe(ValueError("why")) == "ValueError: why"


def test_an_error_shows_the_users_innermost_line_and_not_the_librarys(tmp_path):
    path = script(tmp_path, "import json\ndef f():\n    return json.loads('nope')\n")
    namespace = {}
    exec(compile(path.read_text(), str(path), "exec"), namespace)
    with pytest.raises(ValueError, match="Expecting") as caught:
        namespace["f"]()
    assert describe(caught.value).endswith(f"({path}, line 3: return json.loads('nope'))")


# Its fields


@pytest.mark.parametrize("name", ["model", "loss", "optimizer", "train_data"])
def test_functions_must_be_functions(name):
    with pytest.raises(ProgramError, match=rf"Program\({name}=...\) must be a function, got 3"):
        Program(**{**FIELDS, name: 3})


def test_an_instance_in_the_place_of_a_function_is_told_what_to_give():
    class Net:
        def forward(self, x):
            return x

        def named_parameters(self):
            return []

        __call__ = forward

    with pytest.raises(ProgramError, match=r"got <.*Net object.*>\. Give one that .*, as model=lambda: Net\(\)\.$"):
        Program(**{**FIELDS, "model": Net()})
    assert Program(**{**FIELDS, "model": Net, "loss": Net()}).model is Net
    with pytest.raises(ProgramError, match=r"Program\(test_data=...\) must be a function, .*test_data=lambda: dataset"):
        Program(**FIELDS, test_data=[1, 2])


def test_test_data_of_each_node_are_refused():
    with pytest.raises(ProgramError, match=r"test_data=nfold\.local_data.* each node would evaluate other data"):
        Program(**FIELDS, test_data=local_data(lambda node: [1, 2]))


@pytest.mark.parametrize("metrics", [[max], {"accuracy": 0.9}, {5: max}, {"": max}, {"a\nb": max}, None])
def test_metrics_are_functions_by_name(metrics):
    with pytest.raises(ProgramError, match=r"Program\(metrics=...\) must be a dict of names and functions"):
        Program(**FIELDS, metrics=metrics)
    assert Program(**FIELDS, metrics={"best": max}).metrics == {"best": max}


@pytest.mark.parametrize("name", ["test_loss", "loss", "step", "epoch"])
def test_metrics_have_other_names_than_nfolds_own_figures(name):
    with pytest.raises(
        ProgramError, match=rf"metrics=\{{'{name}': ...\}}\): .* Taken are: test_loss, loss, step, epoch"
    ):
        Program(**FIELDS, metrics={"accuracy": max, name: max})


def test_a_loss_that_is_yet_to_be_built_is_told_so():
    class Loss:
        def forward(self, outputs, targets):
            return outputs

    with pytest.raises(ProgramError, match=r"Program\(loss=Loss\) is a class\. Give one that is built: loss=Loss\(\)"):
        Program(**{**FIELDS, "loss": Loss})


def test_whole_numbers_of_other_types_become_pythons_own():
    given = {name: numpy.int64(8) for name in ("batch_size", "epochs", "chunks", "seed")}
    program = Program(**{**FIELDS, **given})
    assert {name: type(getattr(program, name)) for name in given} == dict.fromkeys(given, int)
    assert program == Program(**{**FIELDS, **dict.fromkeys(given, 8)})


@pytest.mark.parametrize("name", ["batch_size", "epochs", "chunks"])
@pytest.mark.parametrize("value", [0, -1, 1.0, "8", True])
def test_counts_must_be_whole_and_positive(name, value):
    with pytest.raises(ProgramError, match=rf"Program\({name}={value!r}\): it must be a whole number of at least 1"):
        Program(**{**FIELDS, name: value})


def test_only_chunks_may_be_left_open():
    assert Program(**FIELDS, chunks=None).chunks is None
    with pytest.raises(ProgramError, match=r"Program\(epochs=None\)"):
        Program(**FIELDS, epochs=None)


def test_a_batch_cannot_be_cut_finer_than_samples():
    assert Program(**FIELDS, chunks=8).chunks == 8
    with pytest.raises(ProgramError, match=r"a batch of 8 samples cannot be cut into 9 chunks. Use chunks=8 or fewer"):
        Program(**FIELDS, chunks=9)


def test_a_program_is_found_without_torch(tmp_path):
    path = script(tmp_path, SCRIPT + "\nimport sys\nassert 'torch' not in sys.modules, 'torch'\n")
    code = f"from nfold.program import ProgramSource; ProgramSource.parse({str(path)!r}).load()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=dict(os.environ))
    assert done.returncode == 0, done.stderr


def test_a_schedule_is_a_function_or_nothing():
    assert Program(**FIELDS, scheduler=None).scheduler is None
    with pytest.raises(ProgramError, match=r"Program\(scheduler=...\) must be a function, got 0.1"):
        Program(**FIELDS, scheduler=0.1)


@pytest.mark.parametrize("limit", [0, -1.0, True, "1", float("nan"), float("inf")])
def test_a_norm_to_clip_to_is_a_number_above_0(limit):
    assert Program(**FIELDS, clip_norm=1).clip_norm == 1
    with pytest.raises(ProgramError, match=r"^Program\(clip_norm=.*above 0.*Leave it out"):
        Program(**FIELDS, clip_norm=limit)


def test_averages_are_declared_and_no_model_of_torch():
    assert Program(**FIELDS, averages=Averages(decay=0.9)).averages == Averages(decay=0.9)
    with pytest.raises(ProgramError, match=r"^Program\(averages=.*, got function\. Write averages=nfold\.Averages"):
        Program(**FIELDS, averages=lambda model: model)
    with pytest.raises(ProgramError, match="'averaged_f1'"):
        Program(**FIELDS, averages=Averages(), metrics={"averaged_f1": max})


@pytest.mark.parametrize("is_trained", [True, False])
def test_a_loss_whose_own_parameters_nobody_would_train_is_refused(is_trained):
    class CenterLoss:
        def __call__(self, outputs, targets):
            return 0.0

        def forward(self, outputs, targets):
            return 0.0

        def named_parameters(self):
            return [("centers", SimpleNamespace(requires_grad=is_trained))]

    fields = {**FIELDS, "loss": CenterLoss()}
    if is_trained:
        with pytest.raises(
            ProgramError, match=r"loss=CenterLoss\(\)\) has parameters of its own \(centers\), and only"
        ):
            Program(**fields)
    else:
        assert Program(**fields).loss is fields["loss"]


def test_a_script_sees_a_command_line_without_flags_of_ours(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["nfold", "train", "train.py", "--steps", "3"])
    parse = (
        "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--batch', type=int, default=24)\n"
    )
    text = SCRIPT.replace("batch_size=8", "batch_size=parser.parse_args().batch")
    path = script(tmp_path, text.replace("import nfold\n", f"import nfold\n{parse}"))

    assert ProgramSource(path=path).load().batch_size == 24
    assert sys.argv == ["nfold", "train", "train.py", "--steps", "3"]
