"""No advice of a report that nfold itself would refuse: whatever it says to type is planned."""

import re
from dataclasses import replace

import pytest
from injected import Injected

from nfold.analysis.reporting.accepted_advice import is_accepted
from nfold.analysis.reporting.run_report import Result, report

pytestmark = pytest.mark.long

INDIVISIBLE = {"indivisible": "its loss is of a batch"}
CASES = {
    "a bubble of one chunk": (Injected(strategy="pipeline", workers=4, chunks=1, mbit=5000), INDIVISIBLE),
    "a bubble": (Injected(strategy="pipeline", workers=4, chunks=4, mbit=5000), {}),
    "a bubble of whole updates": (
        Injected(strategy="pipeline", workers=4, chunks=2, mbit=5000, batch_size=3),
        {},
    ),
    "a link": (Injected(links={"n2 uplink": 30}), {}),
    "a link, whole updates": (Injected(links={"n2 uplink": 30}), {"update_scope": "model"}),
    "one worker of a program that nobody can share out": (
        Injected(strategy="single", workers=1, mbit=5000, seconds_per_sample=1e-2, cores=4, idle_nodes=3),
        INDIVISIBLE,
    ),
    "servers that sum": (Injected(strategy="ps", servers=1, workers=1, mbit=20000, server_update_s=0.5), {}),
    "memory": (Injected(mbit=5000, memories={"n2": 110 << 20}), {}),
    "uneven stages": (
        Injected(strategy="pipeline", workers=2, mbit=50_000, chunks=8, operators=(0.96, 0.01, 0.01, 0.01, 0.01)),
        {},
    ),
    "few samples": (Injected(workers=3, batch_size=3, mbit=5000, seconds_per_sample=0.1, chunks=3), {}),
}


def played(injected: Injected, changes):
    """The report of a run of another graph, and the question that it was planned from."""
    question = injected._question(injected._cluster(injected.links, {}, injected.probe_error))
    question = replace(question, graph=replace(question.graph, **changes))
    planned = injected._plan(question)
    trace = injected._trace(planned)
    return report(planned, trace, question.cluster, Result(program="my.py"), question=question, skip=2), question


def told(found):
    """Every command and flag of a report."""
    yield from (gain.command for gain in found.verdict.gains if gain.command)
    if found.next_command:
        yield found.next_command
    for text in (found.verdict.text, *(gain.change for gain in found.verdict.gains)):
        for flags in re.findall(r"`((?:-n|--strategy|--chunks|--servers) [^`]+)`", text):
            yield f"nfold train my.py {flags if '-n' in flags else f'-n {found.workers} {flags}'}"
        bare = re.sub(r"`[^`]+`", "", text)
        yield from (f"nfold train my.py -n {found.workers} {flags}" for flags in re.findall(r"--\w+ \w+", bare))


@pytest.mark.parametrize("name", CASES)
def test_whatever_a_report_advises_is_not_refused(name):
    found, question = played(*CASES[name])
    commands = list(told(found))
    assert len(commands) > 3 or name != "a link"
    for command in commands:
        if "hypergraph" in command:
            continue  # it was planned to be promised, which takes seconds
        assert command.startswith("nfold ")
        assert is_accepted(command, question), f"{found.verdict.text!r} and {found.next_command!r}: {command}"


@pytest.mark.parametrize(
    ("command", "changes", "is_right"),
    [
        ("nfold train my.py -n 4 --strategy pipeline --chunks 8", {}, True),
        ("nfold train my.py -n 4 --strategy pipeline --chunks 64", {}, False),
        ("nfold train my.py -n 4 --strategy pipeline --chunks 2", INDIVISIBLE, False),
        ("nfold train my.py -n 4 --strategy pipeline --chunks 1", INDIVISIBLE, True),
        ("nfold train my.py -n 4 --strategy ps --servers 5", {}, False),
        ("nfold compare my.py -n 1,2", {}, True),
        ("nfold compare my.py -n 1,2", INDIVISIBLE, False),
        ("nfold compare my.py -n 4 --strategies ring,ps", {"update_scope": "model"}, False),
        ("nfold plan my.py -n 4", INDIVISIBLE, True),
        ("nfold train my.py -n 1 --steps 20", INDIVISIBLE, True),
    ],
)
def test_what_would_be_refused_is_known(command, changes, is_right):
    injected = Injected(idle_nodes=2)
    question = injected._question(injected._cluster({}, {}, 0.0))
    question = replace(question, graph=replace(question.graph, **changes))
    assert is_accepted(command, question) == is_right
