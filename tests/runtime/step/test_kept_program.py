"""What a process makes of its program once, for all generations."""

import gc
import weakref
from dataclasses import replace

import pytest
from harness import CPU, graph_of, make_plan
from nets import program

from nfold.planning.scheduling.rank_schedules import rank_schedules
from nfold.runtime.step import traced_model
from nfold.runtime.step.kept_program import KeptProgram
from nfold.runtime.step.replica import Replica
from nfold.transport.implementations.in_memory import MemoryNetwork


@pytest.fixture
def traces(monkeypatch):
    """The models that were traced."""
    found, real = [], traced_model.recapture

    def note(model, *given, **wishes):
        found.append(weakref.ref(model))
        return real(model, *given, **wishes)

    monkeypatch.setattr(traced_model, "recapture", note)
    return found


def test_a_cut_model_is_traced_once_and_bound_to_the_model_of_each_generation(traces):
    mine, kept = program("plain"), KeptProgram()
    graph = graph_of(mine)
    for workers in (2, 3, 2):
        plan = make_plan(mine, graph, "pipeline", workers, 0, 4)
        network, schedules = MemoryNetwork(workers), rank_schedules(plan, graph)
        given = (0, mine, mine.train_data(), graph, plan, schedules[0], network.transport(0))
        built = Replica(*given, device=CPU, last_step=9, kept=kept)
        assert built._cells._captured.model is built.model
        built.close()
        network.close()
        del built, given
    gc.collect()
    assert [each() for each in traces] == [None], "the model of an earlier generation is not kept"


def test_what_is_kept_is_of_one_program_and_graph(traces):
    mine, kept = program("plain"), KeptProgram()
    graph = replace(graph_of(mine), unproved="nobody has looked")
    checked = kept.checked(mine, graph, 4)
    assert checked is not mine
    assert kept.checked(mine, graph, 4) is checked
    assert kept.checked(mine, graph, 2) is not checked
    assert kept.checked(mine, replace(graph, unproved=""), 4) is mine
