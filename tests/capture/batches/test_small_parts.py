"""The small pure parts: random seeds, sizes, samples."""

from collections import Counter
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nfold.capture.batches.sizes import Affine, fit, fit_number, fit_tensor
from nfold.capture.computing.random import CellRandom, RandomState
from nfold.capture.example_batches import sample_batches
from nfold.errors import ProgramError


def draws(seed: int, cells: list[tuple[int, int, int]]) -> list[float]:
    random = CellRandom(seed)
    found = []
    for step, chunk, draw in cells:
        random.enter(step, chunk)
        random.seed(draw)
        found.append(torch.rand(()).item())
    return found


def test_every_cell_has_its_own_numbers() -> None:
    before = RandomState()
    cells = [(step, chunk, draw) for step in range(8) for chunk in range(8) for draw in range(4)]
    numbers = draws(0, cells)
    assert Counter(numbers).most_common(1)[0][1] <= 2
    assert numbers == draws(0, cells)
    assert numbers != draws(1, cells)
    assert abs(sum(numbers) / len(numbers) - 0.5) < 0.06
    before.restore()


@given(st.integers(-50, 50), st.integers(-9, 9), st.sets(st.integers(1, 40), min_size=2))
def test_fit_finds_the_line(fixed: int, slope: int, sizes: set[int]) -> None:
    line = Affine(fixed, slope)
    assert fit([(size, line.at(size)) for size in sorted(sizes)]) == line


def test_fit_refuses_what_is_no_line() -> None:
    assert fit([(2, 4), (3, 9)]) == Affine(-6, 5)
    assert fit([(2, 4), (3, 9), (4, 16)]) is None
    assert fit([(2, 1), (4, 2)]) is None
    assert fit([(2, 4), (2, 5)]) is None
    assert fit_tensor([(2, torch.zeros(2)), (3, (torch.zeros(3),))]) is None
    assert fit_tensor([(2, torch.zeros(2, 2)), (3, torch.zeros(3, 3))]) is None, "its bytes are on no line"
    assert fit_number([(2, torch.Size([2, 7])), (3, torch.Size([3, 7]))]) == (Affine(0, 1), Affine(7, 0))


def numbered(count: int) -> list[tuple[torch.Tensor, int]]:
    return [(torch.tensor([float(index)]), index) for index in range(count)]


def test_samples_repeat_in_a_small_dataset() -> None:
    example = sample_batches(numbered(3))
    assert example.batch(5)[1].tolist() == [0, 1, 0, 2, 1]
    assert example.batch(2, 1)[1].tolist() == [0, 2]


def test_samples_come_from_all_over_the_data() -> None:
    chosen = sample_batches(numbered(1000)).batch(12, 2)[1]
    assert {int(index) // 250 for index in chosen} == {0, 1, 2, 3}
    assert len(set(chosen.tolist())) == 12


class Broken:
    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Any:
        if index == 2:
            raise OSError("no such file: 2.png")
        return torch.zeros(2), 0


@pytest.mark.parametrize(
    ("dataset", "words"),
    [
        ([], "empty dataset: list with 0 samples"),
        (iter([]), "must return a map-style dataset"),
        ([torch.zeros(2)], r"must be a pair \(input, target\), item 0 is float32\[2\]"),
        ([(1, 2, 3)], r"item 0 is 3 parts, \(int, int, int\)\. Put several inputs into one tuple or dict"),
        ([{"x": 1, "y": 2}], r"item 0 is \{x: int, y: int\}"),
        (
            [(torch.zeros(2 + (index == 1)), 0) for index in range(3)],
            r"do not fit into one batch: item 1 is \(float32\[3\], int\), the others are \(float32\[2\], int\)\. Give",
        ),
        (
            [(object(), 0) for _ in range(3)],
            r"found <class 'object'>.* They are \(object, int\)\. Give tensors, numbers",
        ),
        (Broken(), r"item 2 of train_data\(\) raised OSError: no such file: 2.png"),
    ],
    ids=["empty", "iterable", "no-pair", "triple", "dict", "ragged", "unknown", "broken"],
)
def test_datasets_that_cannot_work(dataset: Any, words: str) -> None:
    with pytest.raises(ProgramError, match=words):
        sample_batches(dataset).batch(3)
