"""A run's wall time taken apart: nothing is lost, nothing is counted twice."""

from dataclasses import replace
from math import fsum

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nfold.analysis.measured.breakdown import worker_steps
from nfold.analysis.measured.ledger import ledger
from nfold.analysis.reporting.run_report import Result, report

PHASES = {"start-up": 2.0, "building": 1.0, "steps": 10.0, "evaluation": 0.5}


def spent(run, phases=PHASES):
    return ledger(worker_steps(run.trace(), 0), phases, "n2 uplink")


def test_a_step_is_its_last_workers_and_what_it_is_waited_for(run):
    # Rank 2 computes 50 ms and communicates 5: the others compute 10 and wait.
    found = spent(run(workers=3, compute_s=(0.01, 0.01, 0.05), communication_s=(0.045, 0.045, 0.005)))
    assert found == pytest.approx(
        {
            "start-up": 2.0,
            "building": 1.0,
            "evaluation": 0.5,
            "compute": 10.0 * 10 / 55,
            "waiting for rank 2": 10.0 * 40 / 55,
            "network, n2 uplink": 10.0 * 5 / 55,
            "between tasks": 0.0,
        }
    )


def test_input_update_and_the_rest_have_their_own_entries(run):
    found = spent(run(input_s=0.01, update_s=0.02, other_s=0.02))
    each = {name: found[name] for name in ("compute", "network, n2 uplink", "input", "update", "between tasks")}
    assert each == pytest.approx(
        {"compute": 4.0, "network, n2 uplink": 1.0, "input": 1.0, "update": 2.0, "between tasks": 2.0}
    )


def test_an_asynchronous_step_is_that_of_a_mean_worker(run):
    steps = worker_steps(run(workers=2, compute_s=(0.01, 0.05), communication_s=(0.05, 0.01)).trace(), 0)
    found = ledger(steps, {"steps": 10.0}, "", is_asynchronous=True)
    assert found == pytest.approx({"compute": 5.0, "network": 5.0, "between tasks": 0.0})


def test_what_a_bound_holds_workers_back_is_no_network(run):
    steps = worker_steps(run(workers=2, compute_s=(0.01, 0.05), communication_s=(0.05, 0.01)).trace(), 0)
    found = ledger(steps, {"steps": 10.0}, "", is_asynchronous=True, held_share=0.8)
    assert found == pytest.approx(
        {"compute": 5.0, "network": 1.0, "waiting for slower workers": 4.0, "between tasks": 0.0}
    )


def test_steps_that_warm_up_are_booked_as_they_were(run):
    """The first of ten steps takes as long as the other nine, all of it for the network."""
    made = run(workers=1, compute_s=(0.01,), communication_s=(0.0,))
    trace = made.trace()
    first = replace(trace.parts[0], step_s=0.1, communication_s=0.09)
    whole = replace(trace, parts=(first, *trace.parts[1:]), ledger={"steps": 19.0})
    found = report(made.plan(), whole, made.cluster(), Result(), skip=5)
    assert found.ledger == pytest.approx({"compute": 10.0, "network": 9.0, "between tasks": 0.0})
    assert found.time.exposed_communication_s == 0.0, "what is judged is after the warm-up"


def test_phases_without_steps_stay_as_they_are(run):
    assert spent(run(), {"start-up": 1.0}) == {"start-up": 1.0}


@settings(deadline=None)  # what takes long is the machine's other work
@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=5), st.floats(0.001, 1e5))
def test_the_ledger_sums_to_the_wall_clock(run_class, ranks, stepping_s):
    run = run_class(
        workers=len(ranks),
        compute_s=tuple(compute for compute, _ in ranks),
        communication_s=tuple(communication for _, communication in ranks),
    )
    phases = {**PHASES, "steps": stepping_s}
    found = spent(run, phases)
    assert fsum(found.values()) == pytest.approx(fsum(phases.values()), rel=1e-12)
    assert min(found.values()) >= -1e-9 * stepping_s
