"""What a terminal shows of a run."""

import io
from types import SimpleNamespace

from nfold.cli.terminal import TerminalObserver
from nfold.planning.residency.epoch_steps import EpochSteps


def planned(strategy: str, *notes: str) -> SimpleNamespace:
    plan = SimpleNamespace(
        strategy=strategy, workers=1, servers=0, chunks=2, batch_size=8, threads=(1,), notes=notes, world_size=1
    )
    graph = SimpleNamespace(unproved="", notes=("forward draws",))
    epochs, known = EpochSteps.even(2), SimpleNamespace(graph=graph)
    return SimpleNamespace(plan=plan, total_steps=4, epochs=epochs, known=known, foretold=("ends early",))


def test_another_plan_notes_only_what_no_plan_before_has_noted():
    stream = io.StringIO()
    observer = TerminalObserver(stream)
    observer.planned(planned("ps", "n2 is left out"), None)
    observer.planned(planned("single", "n1 is left out"), None)
    notes = [line for line in stream.getvalue().splitlines() if line.startswith("note: ")]
    assert notes == [f"note: {each}" for each in ("forward draws", "n2 is left out", "ends early", "n1 is left out")]
    assert stream.getvalue().count("2 chunks of a batch of 8") == 2
