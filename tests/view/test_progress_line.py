"""The progress line, on a terminal and off it."""

import errno
import threading
from io import StringIO

import pytest

from nfold.core.report import TimeParts
from nfold.view import BesideLine, ProgressLine, RunProgress
from nfold.view.progress_line import progress_text

PARTS = TimeParts(compute_s=0.074, exposed_communication_s=0.012, peer_wait_s=0.006, input_s=0.004, update_s=0.004)
CLEAR = "\r\x1b[K"


class Clock:
    def __init__(self):
        self.now_s = 0.0

    def __call__(self):
        return self.now_s


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def stream():
    return StringIO()


def at(fraction, epoch=1, **fields):
    return RunProgress(epoch=epoch, num_epochs=10, fraction=fraction, **fields)


def test_the_line():
    progress = at(0.41, epoch=2, loss=0.312, samples_per_s=812.3, parts=PARTS, eta_s=14)
    assert progress_text(progress) == (
        "epoch 2/10 41 %  loss 0.31  812 samples/s  compute 78 % network 12 % wait 6 % input 4 %  ETA 0:14"
    )


@pytest.mark.parametrize(("loss", "text"), [(0.0, "0.00"), (99_999.5, "99999.50"), (5.7e68, "5.7e+68")])
def test_a_loss_that_grows_without_bounds_stays_short(loss, text):
    assert progress_text(at(0.0, loss=loss)) == f"epoch 1/10 0 %  loss {text}"


def test_what_is_unknown_is_left_out():
    assert progress_text(at(0.0)) == "epoch 1/10 0 %"
    learnt = at(1.0, loss=0.5, metrics={"test_loss": 0.6, "accuracy": 0.97}, eta_s=14)
    assert progress_text(learnt) == "epoch 1/10 100 %  loss 0.50  test_loss 0.6 accuracy 0.97  ETA 0:14"


def test_a_terminal_line_is_rewritten_ten_times_a_second(stream, clock):
    line = ProgressLine(stream, is_terminal=True, clock=clock)
    for tick in range(21):
        clock.now_s = tick / 100
        line.update(at(tick / 100))
    line.close()
    assert stream.getvalue() == f"{CLEAR}epoch 1/10 0 %{CLEAR}epoch 1/10 10 %{CLEAR}epoch 1/10 20 %\n"


@pytest.mark.parametrize("is_terminal", [True, False])
def test_what_cannot_be_written_ends_nothing(clock, is_terminal):
    class Full(StringIO):
        def flush(self):
            raise OSError(errno.ENOSPC, "No space left on device")

    line = ProgressLine(Full(), is_terminal=is_terminal, clock=clock)
    line.note("a plan")
    line.update(at(1.0))
    with line.aside("what the program prints"):
        pass
    line.update(at(1.0, epoch=2))
    line.note("a note")
    line.close()


def test_a_line_is_cut_to_the_terminal(stream, clock):
    ProgressLine(stream, is_terminal=True, clock=clock, width=10).update(at(0.5))
    assert stream.getvalue() == f"{CLEAR}epoch 1/1"


def test_a_line_with_an_evaluation_stays_whole(stream, clock):
    line = ProgressLine(stream, is_terminal=True, clock=clock, width=10)
    line.update(at(1.0, metrics={"accuracy": 0.97}))
    clock.now_s = 1.0
    line.update(at(0.0, epoch=2))
    assert stream.getvalue() == f"{CLEAR}epoch 1/10 100 %  accuracy 0.97\n{CLEAR}epoch 2/1"


def test_plain_lines_come_every_30_s_and_at_each_epochs_end(stream, clock):
    line = ProgressLine(stream, is_terminal=False, clock=clock)
    for second in range(0, 100, 5):
        clock.now_s = second
        line.update(at(second / 100))
    line.update(at(1.0))
    line.close()
    assert stream.getvalue().splitlines() == [f"epoch 1/10 {done} %" for done in (30, 60, 90, 100)]


def test_plain_output_holds_no_control_characters(stream, clock):
    line = ProgressLine(stream, is_terminal=False, clock=clock)
    line.update(at(1.0))
    line.note("checkpoint kept")
    line.close()
    assert stream.getvalue() == "epoch 1/10 100 %\ncheckpoint kept\n"


def test_a_note_stands_above_the_line(stream, clock):
    line = ProgressLine(stream, is_terminal=True, clock=clock)
    line.note("first")
    line.update(at(0.5))
    line.note("second")
    assert stream.getvalue() == f"first\n{CLEAR}epoch 1/10 50 %{CLEAR}second\nepoch 1/10 50 %"


@pytest.fixture
def line(stream, clock):
    return ProgressLine(stream, is_terminal=True, clock=clock)


def test_what_a_program_prints_stands_above_the_line(stream, clock, line):
    printed = BesideLine(stream, line)
    line.update(at(0.1))
    print("a batch", 3, file=printed)
    clock.now_s = 1.0
    line.update(at(0.2))
    line.close()
    assert stream.getvalue() == f"{CLEAR}epoch 1/10 10 %{CLEAR}a batch 3\n{CLEAR}epoch 1/10 20 %\n"


def test_a_line_that_a_program_has_begun_is_left_for_it_to_end(stream, clock, line):
    printed = BesideLine(stream, line)
    print("loading ..", end="", file=printed, flush=True)
    line.update(at(0.1))
    print(" done", file=printed)
    line.update(at(0.2))
    print("dots ..", end="", file=printed, flush=True)
    line.note("rank 1 is late")
    print("more", end="", file=printed, flush=True)
    line.update(at(1.0))
    assert stream.getvalue() == (
        f"loading .. done\n{CLEAR}epoch 1/10 20 %{CLEAR}dots ..\nrank 1 is late\nmore\n{CLEAR}epoch 1/10 100 %"
    )


def test_a_stream_beside_the_line_is_the_stream_to_everybody_else(stream, line):
    printed = BesideLine(stream, line)
    assert not printed.isatty()
    assert (printed.write(""), printed.write("abc"), printed.write("d\ne")) == (0, 3, 3)
    assert printed.getvalue() == "abcd\n"
    printed.flush()
    assert printed.getvalue() == "abcd\ne"
    printed.write("f")
    printed.close()
    assert printed.getvalue() == "abcd\nef"


def test_threads_that_print_do_not_cut_a_line_in_two(stream, clock, line):
    printed = BesideLine(stream, line)

    def speak(number):
        for _ in range(50):
            print("thread", number, file=printed)

    threads = [threading.Thread(target=speak, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for tick in range(100):
        clock.now_s += 1
        line.update(at(tick / 100))
    for thread in threads:
        thread.join()
    pieces = stream.getvalue().replace(CLEAR, "\n").split("\n")
    assert sum(piece.startswith("thread ") and len(piece) == 8 for piece in pieces) == 150
    assert all(piece.startswith(("thread ", "epoch ")) or not piece for piece in pieces)


@pytest.mark.parametrize(
    ("loss", "text"),
    [(3e-7, "3e-07"), (0.0123, "0.0123"), (0.31, "0.31"), (12.3, "12.30"), (0.0, "0.00"), (-2e-5, "-2e-05")],
)
def test_small_losses_and_metrics_keep_their_digits(loss, text):
    line = progress_text(RunProgress(epoch=1, num_epochs=2, fraction=1.0, loss=loss, metrics={"error": 4.56e-6}))
    assert f"loss {text}  error 4.56e-06" in line


@pytest.mark.parametrize("is_terminal", [True, False])
def test_of_many_short_epochs_some_are_told_and_of_long_ones_all(stream, clock, is_terminal):
    line = ProgressLine(stream, is_terminal=is_terminal, clock=clock)
    for epoch_s, expected in ((0.01, [1, 2, 3, 4, 13, 26, 39, 52, 65, 78, 91, 100]), (31.0, list(range(1, 101)))):
        stream.truncate(0)
        for epoch in range(1, 101):
            clock.now_s += epoch_s
            line.update(RunProgress(epoch=epoch, num_epochs=100, fraction=1.0, metrics={"accuracy": 0.5}))
        told = [text for text in stream.getvalue().splitlines(keepends=True) if text.endswith("\n")]
        assert [int(text.split("epoch ")[-1].split("/")[0]) for text in told] == expected
