"""report: the pages that people open, written at the end of a run or again from the files of its folder."""

import os
import platform
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from nfold.core import codec
from nfold.core.environment import Environment
from nfold.core.findings.comparison import Comparison
from nfold.errors import CheckpointError, InternalError, PlanError, RunError
from nfold.planning.operator_parts.splitting import split_graph
from nfold.verbs.results.phases import WRITING, Phases
from nfold.verbs.results.scaling_forecast import scaling
from nfold.verbs.results.summary import RunOutcome
from nfold.verbs.run_folder.files import MODEL, PAGE, REPORT, TRACE
from nfold.verbs.run_folder.folder import RunFolder
from nfold.verbs.run_folder.whole_files import MAKE_ROOM
from nfold.view.chrome_trace import chrome_trace
from nfold.view.html import RunFacts, Scaling, compare_page, run_page
from nfold.view.timeline import timeline

COMPARISON_PAGE = "compare.html"
_PACKAGES = ("nfold", "torch", "numpy", "safetensors")


@dataclass(frozen=True, kw_only=True, slots=True)
class Written:
    """The files that `report` wrote."""

    page: Path
    chrome: Path | None


def report(path: str | Path, *, chrome: str | Path | None = None) -> Written:
    """Write the page of a run again from the files in its folder.

    Args:
        path: the run's folder.
        chrome: also write the traced steps to this file, for ui.perfetto.dev and chrome://tracing.

    Raises:
        PlanError: the folder holds no run that has ended, it traced no step that could be exported, or the trace would
            take the place of one of the run's own files.
        RunError: a file cannot be written.
    """
    folder = RunFolder.open(path)
    target = None if chrome is None else Path(chrome)
    if target is not None and folder.is_its_own(target):
        raise PlanError(f"--chrome {target}: that is a file of the run itself. Name another one.")
    facts = folder_facts(folder)
    _write_page(folder, facts)
    if target is not None:
        _write_chrome(target, facts)
    return Written(page=folder.path / PAGE, chrome=target)


def folder_facts(folder: RunFolder) -> RunFacts:
    """Read all that a page shows.

    Raises:
        PlanError: the folder holds no run that has ended.
    """
    ended, known = folder.report(), folder.known()
    if known.plan is None:
        raise InternalError(f"{folder.path} holds a report and no plan")
    return RunFacts(
        folder=str(folder.path),
        report=ended,
        plan=known.plan,
        cluster=known.cluster,
        graph=split_graph(known.graph, known.plan.splits),
        trace=folder.trace(),
        history=folder.history(),
        environment=folder.environment(),
        scaling=scaling(known, known.plan, ended),
    )


def write_documents(
    folder: RunFolder, outcome: RunOutcome, write_model: Callable[[], None], phases: Phases, *, is_complete: bool
) -> None:
    """Write what became of a run that has just been summed up.

    Each file is tried, whatever became of the others: a full disk that has no room for a large one may have some for
    those after it. The time that writing took is in the ledger, which is in the trace, in the report and on the page:
    so the trace is written when it is known, and the other two, which by then take a moment, once more.

    Args:
        folder: of the run.
        outcome: what it amounts to.
        write_model: puts the trained parameters into the folder.
        phases: keep the time.
        is_complete: whether it has trained to its end, so that nobody can go on with it.

    Raises:
        CheckpointError: the disk is full, or the folder is gone; says what is lost and what is not.
    """
    if outcome.trace is None or outcome.report is None or outcome.plan is None or outcome.known is None:
        raise InternalError("a run that was not summed up has no documents")
    forecast = cache(partial(scaling, outcome.known, outcome.plan, outcome.report))
    writes: dict[str, Callable[[], None]] = {
        REPORT: lambda: _write_report(folder, outcome),
        MODEL: write_model,
        TRACE: lambda: _write_trace(folder, outcome),
        PAGE: lambda: _write_pages(folder, outcome, forecast()),
    }
    errors = _try_all({name: writes[name] for name in (REPORT, MODEL, PAGE)})
    is_timed = not errors
    if is_timed:
        outcome.keep_time(phases, WRITING)
    errors |= _try_all({TRACE: writes[TRACE]})
    untimed = _try_all({name: writes[name] for name in (REPORT, PAGE)}) if is_timed else {}
    for first in (errors | untimed).values():
        if not is_complete:
            raise first
        reason = str(first).removesuffix(MAKE_ROOM).strip()
        missing = tuple(name for name in writes if name in errors)
        told = _tell_missing(folder, reason, missing) if missing else _tell_untimed(folder, reason, tuple(untimed))
        raise CheckpointError(told) from first


def _try_all(writes: Mapping[str, Callable[[], None]]) -> dict[str, CheckpointError]:
    """Write all that can be written, and return what went wrong by file."""
    errors: dict[str, CheckpointError] = {}
    for name, write in writes.items():
        try:
            write()
        except CheckpointError as error:
            errors[name] = error
    return errors


def _tell_untimed(folder: RunFolder, reason: str, untimed: Sequence[str]) -> str:
    """Say that all is there, but for the time that writing it took."""
    lacking = f"{' and '.join(untimed)} {'lacks' if len(untimed) == 1 else 'lack'}"
    return f"{_tell_done(folder, reason, untimed)} Nothing else is lost: {lacking} the time that writing took."


def _tell_done(folder: RunFolder, reason: str, missing: Sequence[str]) -> str:
    model = "" if MODEL in missing else f" and {folder.path / MODEL} holds the model"
    return f"training is complete{model}, but {reason}"


def _tell_missing(folder: RunFolder, reason: str, missing: Sequence[str]) -> str:
    """Say why not all could be written, what is there all the same, and what to do."""
    run = shlex.quote(str(folder.path))
    done = _tell_done(folder, reason, missing)
    unwritten = f"Not written: {', '.join(missing)}."
    if REPORT in missing:
        return f"{done} {unwritten} What was measured is lost. Make room before the next run."
    if TRACE in missing:
        kept = f"`nfold why {run}` works without, but `nfold report` cannot draw the page again."
        return f"{done} {unwritten} {kept} Make room before the next run."
    if PAGE in missing:
        return f"{done} {unwritten} Make room, then write the page with: nfold report {run}"
    return f"{done} {unwritten} What was measured is there: nfold why {run}. Make room."


def _write_report(folder: RunFolder, outcome: RunOutcome) -> None:
    """Write the report, and the cluster where the report is of links that were probed again."""
    if outcome.report is None or outcome.trace is None or outcome.known is None:
        raise InternalError("a run that was not summed up has no report")
    if outcome.trace.since_step:
        folder.save(outcome.known.cluster)
    folder.save(outcome.report)


def _write_trace(folder: RunFolder, outcome: RunOutcome) -> None:
    if outcome.trace is None:
        raise InternalError("a run that was not summed up has no trace")
    folder.save(outcome.trace)


def _write_pages(folder: RunFolder, outcome: RunOutcome, forecast: Scaling) -> None:
    """Write what people will look at, and what the run ran on, when it has just been summed up.

    Raises:
        CheckpointError: the disk is full, or the folder is gone.
    """
    if outcome.plan is None or outcome.known is None or outcome.report is None or outcome.trace is None:
        raise InternalError("a run that was not summed up has no page")
    lasted = timedelta(seconds=sum(outcome.trace.ledger.values()))
    environment = this_environment(datetime.now(UTC) - lasted, sys.argv)
    folder.save(environment)
    facts = RunFacts(
        folder=str(folder.path),
        report=outcome.report,
        plan=outcome.plan,
        cluster=outcome.known.cluster,
        graph=split_graph(outcome.known.graph, outcome.plan.splits),
        trace=outcome.trace,
        history=outcome.history,
        environment=environment,
        scaling=forecast,
    )
    _write_page(folder, facts)


def write_comparison(folder: Path, comparison: Comparison) -> Comparison:
    """Write compare.json and compare.html beside the runs, and return the comparison with where to look at it.

    Raises:
        CheckpointError: the disk is full, or the folder is gone.
    """
    target = RunFolder(folder)
    written = replace(comparison, page=str(folder / COMPARISON_PAGE))
    target.write_whole("compare.json", f"{codec.dumps(written, indent=1)}\n".encode(), "the comparison")
    target.write_whole(COMPARISON_PAGE, compare_page(written).encode(), "the page of the comparison")
    return written


def this_environment(started: datetime, command: Sequence[str]) -> Environment:
    """Describe this process's machine and packages, without loading them."""
    system = platform.uname()
    return Environment(
        started=started.isoformat(timespec="seconds"),
        command=(Path(command[0]).name, *command[1:]) if command else (),
        system=f"{system.system} {system.release} {system.machine}",
        processor=_processor(),
        versions={"python": platform.python_version(), **_versions()},
    )


def _versions() -> dict[str, str]:
    found = {}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{names[0]} ({os.cpu_count()} cores)" if names else ""


def _write_page(folder: RunFolder, facts: RunFacts) -> None:
    folder.write_whole(PAGE, run_page(facts).encode(), "the page of the run")


def _write_chrome(path: Path, facts: RunFacts) -> None:
    nodes = facts.plan.nodes
    if not facts.trace.steps:
        raise PlanError(
            f"no step of {facts.folder} was traced task by task, since the first ones after a start only warm up, so "
            f"there is nothing to export to {path}. Train for some more steps"
        )
    text = chrome_trace(timeline(facts.trace.steps, nodes), nodes, run=facts.folder)
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise RunError(f"cannot write the trace to {path}: {error.strerror}. Use another --chrome.") from error
