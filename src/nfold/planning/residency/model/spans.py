"""Lists of samples by their numbers, as ranges [first, end): in an order that matters."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence

from nfold.core.residency import Spans


def of_numbers(numbers: Iterable[int]) -> Spans:
    """Return samples as spans, ascending."""
    return joined([(number, number + 1) for number in sorted(numbers)])


def is_in(spans: Spans, number: int) -> bool:
    """Whether spans, which ascend, hold a sample. O(log n) for n spans."""
    place = bisect_right(spans, number, key=lambda span: span[0])
    return bool(place) and number < spans[place - 1][1]


def num_samples(spans: Spans) -> int:
    """Return how many samples spans hold."""
    return sum(end - first for first, end in spans)


def joined(spans: Sequence[tuple[int, int]]) -> Spans:
    """Return the same samples in the same order, where spans that follow each other are one."""
    found: list[tuple[int, int]] = []
    for first, end in spans:
        if found and found[-1][1] == first:
            found[-1] = (found[-1][0], end)
        else:
            found.append((first, end))
    return tuple(found)


def union(spans: Iterable[tuple[int, int]]) -> Spans:
    """Return all samples of spans that may overlap, ascending."""
    found: list[tuple[int, int]] = []
    for first, end in sorted(spans):
        if found and first <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((first, end))
    return tuple(found)


def cut_last(spans: Spans, count: int) -> tuple[Spans, Spans]:
    """Return spans without their last so many samples, and those."""
    kept, taken = list(spans), []
    while count > 0 and kept:
        first, end = kept.pop()
        border = max(first, end - count)
        taken.append((border, end))
        count -= end - border
        if border > first:
            kept.append((first, border))
    return tuple(kept), tuple(reversed(taken))


def common(spans: Spans, others: Spans) -> Spans:
    """Return the samples of `spans`, in their order, that are in `others`. O(n m) for n and m spans."""
    return joined([part for span in spans for part in _parts_in(span, others)])


def without(spans: Spans, others: Spans) -> Spans:
    """Return the samples of `spans`, in their order, that are not in `others`. O(n m) for n and m spans."""
    return joined([part for span in spans for part in _parts_outside(span, others)])


def _parts_in(span: tuple[int, int], others: Spans) -> Iterator[tuple[int, int]]:
    for first, end in sorted(others):
        if max(first, span[0]) < min(end, span[1]):
            yield max(first, span[0]), min(end, span[1])


def _parts_outside(span: tuple[int, int], others: Spans) -> Iterator[tuple[int, int]]:
    begin, stop = span
    for first, end in _parts_in(span, others):
        if begin < first:
            yield begin, first
        begin = end
    if begin < stop:
        yield begin, stop
