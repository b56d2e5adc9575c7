"""Samples that move wait for all else, and nothing of a frame that is half written is lost."""

from hypothesis import given
from hypothesis import strategies as st

from nfold.transport.links.framing import Frame, Kind, control_frame, data_frame
from nfold.transport.links.send_queue import SendQueue
from nfold.transport.tags import Use, in_generation, tag_of


def frame(use: Use, number: int, generation: int = 0) -> Frame:
    return data_frame(in_generation(generation, tag_of(use, number)), memoryview(b"1234"), lambda: None)


def taken(queue: SendQueue) -> list[Frame]:
    found = []
    while queue:
        found.append(queue.popleft())
    return found


@given(st.lists(st.sampled_from([Use.STEP, Use.PIECE, Use.SAMPLES])))
def test_samples_go_last_and_each_kind_in_its_order(uses: list[Use]) -> None:
    queue, frames = SendQueue(), [frame(use, number) for number, use in enumerate(uses)]
    for each in frames:
        queue.append(each)
    samples = [each for each, use in zip(frames, uses, strict=True) if use is Use.SAMPLES]
    others = [each for each, use in zip(frames, uses, strict=True) if use is not Use.SAMPLES]
    assert list(map(id, taken(queue))) == list(map(id, others + samples))


def test_what_is_half_written_goes_on_first() -> None:
    queue, begun, step = SendQueue(), frame(Use.SAMPLES, 0), frame(Use.STEP, 1)
    begun.wrote(7)
    for each in (begun, step):
        queue.append(each)
    queue.forget_before(1)
    assert taken(queue) == [begun]


def test_a_last_word_comes_behind_all_there_is() -> None:
    queue, sample, goodbye = SendQueue(), frame(Use.SAMPLES, 0), control_frame(Kind.GOODBYE)
    for each in (sample, goodbye):
        queue.append(each)
    assert taken(queue) == [sample, goodbye]


def test_what_is_given_up_is_gone() -> None:
    queue, late = SendQueue(), frame(Use.SAMPLES, 1, generation=2)
    for each in (frame(Use.SAMPLES, 0), frame(Use.STEP, 0), late):
        queue.append(each)
    queue.forget_before(2)
    assert taken(queue) == [late]
    queue.append(late)
    queue.clear()
    assert not queue
