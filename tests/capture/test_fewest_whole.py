"""The search for modules that must stay whole finds just those that are wrong, in few trials."""

import random
from collections.abc import Sequence

import pytest

from nfold.capture.fewest_whole import Found, fewest_whole

MANY = 10_000


class Tree:
    """Modules in modules, of which some are wrong unless they are whole, or what is around them is."""

    def __init__(self, paths: Sequence[str], wrong: Sequence[str], kinds: dict[str, str] | None = None) -> None:
        self._paths, self._wrong, self._kinds = paths, wrong, kinds or {}
        self.trials = 0

    def search(self, most_trials: int = MANY) -> Found[list[str]] | None:
        """Search, with a capture that is the list of what is whole."""
        return fewest_whole(
            self._inside(""),
            right=self._right,
            within=self._inside,
            kind=lambda path: self._kinds.get(path, ""),
            most_trials=most_trials,
        )

    def _inside(self, path: str) -> list[str]:
        return [each for each in self._paths if each.rpartition(".")[0] == path]

    def _right(self, kept: Sequence[str]) -> list[str] | None:
        self.trials += 1
        covered = all(any(f"{each}.".startswith(f"{whole}.") for whole in kept) for each in self._wrong)
        return list(kept) if covered else None


def test_wrong_modules_stay_whole_wherever_they_are() -> None:
    for seed in range(200):
        draw = random.Random(seed)
        paths = [str(index) for index in range(draw.randint(1, 6))]
        for _ in range(2):
            paths += [f"{path}.{index}" for path in list(paths) for index in range(draw.randint(0, 2))]
        paths = list(dict.fromkeys(paths))
        wrong = draw.sample(paths, draw.randint(0, min(3, len(paths))))
        wrong = [path for path in wrong if not any(path.startswith(f"{other}.") for other in wrong)]
        found = Tree(paths, wrong, {path: draw.choice("ab") for path in paths}).search()
        assert found is not None
        assert (sorted(found.best), found.wrong, found.untried) == (sorted(wrong), tuple(sorted(wrong)), ())


@pytest.mark.parametrize(("wrong", "most"), [([], 2), (["40"], 14), (["3", "60"], 26)])
def test_one_of_many_alike_is_found_by_halves(wrong: list[str], most: int) -> None:
    tree = Tree([str(index) for index in range(64)], wrong)
    found = tree.search()
    assert found is not None
    assert sorted(found.best) == wrong
    assert tree.trials <= most


def test_a_module_in_each_of_many_alike_is_found_in_all_at_once() -> None:
    blocks = [str(index) for index in range(20)]
    paths = [*blocks, *(f"{block}.{part}" for block in blocks for part in "ab")]
    tree = Tree(paths, [f"{block}.a" for block in blocks], {path: path[-1] if "." in path else "" for path in paths})
    found = tree.search(most_trials=5)
    assert found is not None
    assert {path[-1] for path in found.best} == {"a"}
    assert len(found.best) == 20


def test_what_there_was_no_time_for_is_told() -> None:
    found = Tree([str(index) for index in range(8)], ["2"]).search(most_trials=4)
    assert found is not None
    assert "2" in found.best
    assert not set(found.wrong) & set(found.untried)
    assert set(found.wrong) | set(found.untried) == set(found.best)


def test_nothing_is_found_where_whole_modules_are_wrong_too() -> None:
    tree = Tree(["0", "1"], ["elsewhere"])
    assert tree.search() is None
    assert tree.trials == 1
