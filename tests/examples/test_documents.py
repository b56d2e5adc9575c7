"""The documents: what they link to exists, and the words that users type are spelled as the code has them."""

import re
import shlex
from dataclasses import fields
from pathlib import Path

import pytest

from nfold.cli.main import build_parser
from nfold.planning.choosing.strategies import STRATEGY_NAMES
from nfold.program import Program

ROOT = Path(__file__).parents[2]
FOLDERS = ("docs", "examples", "benchmarks", "src", "tests")
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(path for name in FOLDERS for path in (ROOT / name).rglob("*.md"))])
LINK = re.compile(r"\]\((?!https?://)([^)#]*)(?:#([^)]*))?\)")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(document: Path) -> None:
    for target, anchor in LINK.findall(document.read_text()):
        path = document.parent / target if target else document
        # A result appears when its benchmark has run.
        assert path.exists() or path.name == "result.json", f"{document.name} links to {target}, which does not exist"
        if anchor:
            assert anchor in _anchors(path), f"{document.name} links to #{anchor}, which {path.name} does not have"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_modules_that_are_named_exist(document: Path) -> None:
    for name in re.findall(r"`((?:\w+/)+\w+\.py)`", document.read_text()):
        assert (ROOT / name).exists() or (ROOT / "src" / "nfold" / name).exists(), f"{document.name} names {name}"


def commands(program: str) -> list[tuple[str, list[str]]]:
    """What documents tell to type, in indented lines, in tables and in running text."""
    typed = re.compile(rf"(?:^ {{4,}}|`)(?:\w+=\S+ )?({re.escape(program)} [^`\n]*)", re.MULTILINE)
    found = [(document.name, command) for document in DOCUMENTS for command in typed.findall(document.read_text())]
    return [(name, shlex.split(command, comments=True)) for name, command in found]


def test_commands_of_nfold_have_the_flags_that_documents_give_them() -> None:
    told = [(name, words) for name, words in commands("nfold") if len(words) > 2]
    assert len(told) > 10
    for name, words in told:
        try:
            build_parser().parse_args(words[1:])
        except SystemExit:
            pytest.fail(f"{name}: {shlex.join(words)} cannot be typed")
        for script in (word for word in words if word.startswith("examples/")):
            assert (ROOT / script).is_file(), f"{name} names {script}"


def test_commands_of_benchmarks_have_the_flags_that_documents_give_them() -> None:
    told = [(name, words) for name, words in commands(".venv/bin/python") if words[1].endswith("/run.py")]
    assert len(told) > 10
    for name, (_, script, *words) in told:
        if "<" in script:
            continue
        assert (ROOT / script).is_file(), f"{name} names {script}"
        for flag in (word for word in words if word.startswith("-")):
            assert f'"{flag}"' in (ROOT / script).read_text(), f"{name}: {script} has no {flag}"


@pytest.mark.parametrize("document", ["README.md", "docs/commands.md"])
def test_every_strategy_is_told_of(document: str) -> None:
    text = (ROOT / document).read_text()
    assert [name for name in STRATEGY_NAMES if f"`{name}`" not in text] == []


def test_every_flag_stands_in_a_table() -> None:
    told = _first_cells(ROOT / "docs" / "commands.md")
    commands = next(action for action in build_parser()._actions if isinstance(action.choices, dict))
    tabled = [commands.choices[name] for name in ("train", "plan", "compare", "advise")]
    flags = {flag for parser in tabled for flag in parser._option_string_actions}
    assert sorted(flag for flag in flags - {"-h", "--help"} if not re.search(rf"`{flag}\b", told)) == []


def test_every_field_of_a_program_stands_in_a_table() -> None:
    told = _first_cells(ROOT / "docs" / "program.md")
    assert [field.name for field in fields(Program) if not re.search(rf"`{field.name}\b", told)] == []


def test_readme_stays_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 130


def _first_cells(path: Path) -> str:
    return "\n".join(re.findall(r"^\| (.*?) \|", path.read_text(), re.MULTILINE))


def _anchors(path: Path) -> set[str]:
    text = re.sub(r"^```.*?^```", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)
    titles = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title).strip().lower().replace(" ", "-") for title in titles}
