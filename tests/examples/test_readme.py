"""The Python of the documents does what it says."""

import re
from pathlib import Path

import nfold

ROOT = Path(__file__).parents[2]


def test_early_stopping_as_documented_leaves_the_loop_at_the_accuracy_that_it_names(tmp_path, monkeypatch):
    document = (ROOT / "docs" / "commands.md").read_text()
    (loop,) = re.findall(r"^for step in nfold\.start\(.*\n(?:    .*\n)+", document, re.MULTILINE)
    loop = loop.replace("workers=2", "workers=2, strategy='ring', debug=True, steps=200")
    loop = loop.replace('"examples/', f'"{ROOT}/examples/')
    monkeypatch.chdir(tmp_path)
    found: dict[str, object] = {"nfold": nfold}
    exec(loop, found)

    last = found["step"]
    assert last.metrics["accuracy"] > 0.9
    history = nfold.resume("runs/digits-1", steps=last.step + 1, debug=True).history
    evaluated = [line for line in history if line["metrics"] and line["step"] <= last.step]
    assert [line["metrics"]["accuracy"] > 0.9 for line in evaluated] == [False] * (len(evaluated) - 1) + [True]


def test_the_program_of_the_readme_trains(tmp_path, monkeypatch):
    (script,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    (tmp_path / "mine.py").write_text(script)
    monkeypatch.chdir(tmp_path)
    run = nfold.train("mine.py", workers=2, strategy="ring", debug=True, steps=28)
    losses = [line["loss"] for line in run.history]
    assert losses[-1] < losses[0]
