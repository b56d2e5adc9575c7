"""The documents: what they link to exists, and the words that users type are spelled as the code has them."""

import re
from pathlib import Path

import pytest

from nfold.planning.strategies import STRATEGY_NAMES

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "benchmarks").rglob("*.md")])
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


def test_readme_names_every_strategy() -> None:
    readme = (ROOT / "README.md").read_text()
    assert [name for name in STRATEGY_NAMES if f"`{name}`" not in readme] == []


def _anchors(path: Path) -> set[str]:
    titles = re.findall(r"^#+ (.*)$", path.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title).strip().lower().replace(" ", "-") for title in titles}
