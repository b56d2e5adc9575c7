"""train, start, plan: from a program to a run, step by step or whole, or only to what it would be."""

import shlex
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from nfold.core.cluster import Cluster
from nfold.core.options.run_options import WATCHING, RunOptions
from nfold.core.plan import Plan
from nfold.core.report import Report
from nfold.core.text.units import count
from nfold.errors import CheckpointError, InternalError, PlanError, ProgramError
from nfold.program import Program, ProgramSource, refuse_while_loading
from nfold.verbs.options.job_record import refuse_unkept
from nfold.verbs.options.keywords import takes_options
from nfold.verbs.options.option_checks import Options, Wishes, check_faults, check_out
from nfold.verbs.run_folder.files import MODEL
from nfold.verbs.run_folder.folder import RunFolder
from nfold.verbs.run_folder.held_hosts import forget_held
from nfold.verbs.run_folder.missed_best import keep_missed_best
from nfold.verbs.running.going_on import resumed_of, resumed_options
from nfold.verbs.running.held_run import hosts_back
from nfold.verbs.running.observer import NullObserver, Observer
from nfold.verbs.running.run import Run, run_of
from nfold.verbs.running.run_job import Job
from nfold.verbs.running.steps import Steps

Source = str | Path | Program | Callable[[], Program]


@dataclass(frozen=True, kw_only=True, slots=True)
class WatchedOptions(RunOptions):
    """What a run may be asked for, and who watches it."""

    observer: Observer | None = None
    begun_s: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainOptions(WatchedOptions):
    """Keywords of `train`."""

    go_on: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class ResumeOptions(WatchedOptions):
    """Keywords of `resume`."""

    program: str | Path | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanOptions(RunOptions):
    """Keywords of `plan`."""

    cluster: str | Path | Cluster | None = None


@takes_options(TrainOptions)
def train(program: Source, asked: TrainOptions, wishes: Wishes) -> Run:
    """Train a program to its end, or until its time is over.

    Args:
        program: a script's path (`FILE.py` or `FILE.py:function`), a function of a script that returns a Program, or
            a Program; the last has no script that workers could import, so its ranks are threads of this process.
        go_on: go on with the run that `out` holds, as `resume` does, if it holds one; one that is complete is returned.
        observer: is shown what happens.
        begun_s: when the run's ledger begins, by time.perf_counter(); None: now.
        workers, strategy, servers ..: the fields of RunOptions (`core/options/run_options.py`), named as the flags of
            `nfold train`.

    Raises:
        NfoldError: with what happened, where, and what to do; nothing is left running.
        KeyboardInterrupt: Ctrl-C; the checkpoint is kept.
    """
    begun_s, observer = _watched(asked)
    options = Options(**wishes)
    source = find_source(program)
    if asked.go_on:
        return _begin_or_go_on(source, options, wishes, observer, begun_s)
    folder = RunFolder.create(options.out, name_of(source))
    job = Job(source, options, observer, folder=folder, begun_s=begun_s, is_listed=True)
    return play_to_end(job)


def _watched(asked: WatchedOptions) -> tuple[float, Observer]:
    """Return when a run begins, and who is shown what happens."""
    return time.perf_counter() if asked.begun_s is None else asked.begun_s, asked.observer or NullObserver()


def _begin_or_go_on(
    source: ProgramSource | Program, options: Options, wishes: Wishes, observer: Observer, begun_s: float
) -> Run:
    if options.out is None:
        raise PlanError("--go-on needs --out RUN: without it, the run that was begun cannot be found again.")
    if isinstance(source, Program):
        raise ProgramError("go_on needs the path of a script: a program without one cannot be loaded again.")
    folder, holds_run = RunFolder.begin_or_open(options.out, name_of(source))
    if not holds_run:
        return play_to_end(Job(source, options, observer, folder=folder, begun_s=begun_s, is_listed=True))
    try:
        _refuse_other_script(folder, source)
        complete = _complete_run(folder, wishes)
    except BaseException:
        folder.release()
        raise
    if complete is not None:
        folder.release()
        return complete
    return _go_on(folder, str(source), wishes, observer, begun_s)


def _refuse_other_script(folder: RunFolder, source: ProgramSource) -> None:
    """Refuse a script that is not the run's; one that was moved or copied is."""
    file, _, function = folder.record().source.rpartition(":")
    was = Path(file)
    is_same_file = not was.is_file() or was.read_bytes() == source.path.read_bytes()
    if is_same_file and function == source.function:
        return
    raise PlanError(
        f"{folder.path} holds a run of {file}:{function}, not of {source}. Use another --out, or, where that is the "
        f"same program, nfold train {shlex.quote(str(source))} --resume {shlex.quote(str(folder.path))}."
    )


def _complete_run(folder: RunFolder, wishes: Wishes) -> Run | None:
    """Return the run of a folder if no step of it is left to do."""
    record, known, checkpoint = folder.record(), folder.known(), folder.checkpoint()
    if known.plan is None:
        raise CheckpointError(f"{folder.path} holds no plan")
    total = resumed_options(folder, known.plan.chunks, wishes).steps or record.total_steps
    has_model = (folder.path / MODEL).exists()
    is_kept = checkpoint is not None and not record.unkept
    done = checkpoint.step if checkpoint is not None and is_kept else folder.last_step if has_model else 0
    if done != total:
        return None
    if checkpoint is not None and is_kept:
        folder.ensure_model(checkpoint)
        keep_missed_best(folder, checkpoint)
    told = f"the run in {folder.path} is complete: {done} of {total} steps are done."
    return Run(folder=folder.path, plan=known.plan, history=folder.history(), was_complete=True, told=told)


@takes_options(RunOptions)
def start(program: Source, asked: RunOptions, wishes: Wishes) -> Steps:
    """Train step by step: each step is played when the loop asks for it, and leaving the loop ends the run cleanly.

    So does the end of the script, if it comes first. The run's folder is made when the first step is asked for.

    Raises:
        NfoldError: as `train` does.
    """
    del asked
    options, source = Options(**wishes), find_source(program)

    def begin() -> Job:
        folder = RunFolder.create(options.out, name_of(source))
        return Job(source, options, NullObserver(), folder=folder, lockstep=True, is_listed=True)

    return Steps(begin)


@takes_options(ResumeOptions)
def resume(path: str | Path, asked: ResumeOptions, wishes: Wishes) -> Run:
    """Go on with a run from its last checkpoint, in its folder.

    Args:
        path: the run's folder.
        program: where its script is now, if it was moved; the run's folder keeps the new place.
        observer: is shown what happens.
        begun_s: when the ledger of what is added begins, by time.perf_counter(); None: now.
        workers, strategy, servers ..: what shall differ from the run's; with other ranks it is planned anew, with the
            same it goes on bit for bit. Chunks stay as they are.

    Raises:
        NfoldError: there is nothing to go on with, or as `train` does.
    """
    begun_s, observer = _watched(asked)
    folder = RunFolder.open(path)
    refuse_while_loading("resume")
    folder.lock()
    return _go_on(folder, asked.program, wishes, observer, begun_s)


def resume_held(path: str | Path, *, observer: Observer | None = None, begun_s: float | None = None) -> Run:
    """Go on with a run whose command is gone, on its hosts, which hold, from the step that they hold.

    Args:
        path: the run's folder.
        observer: is shown what happens.
        begun_s: when the ledger of what is added begins, by time.perf_counter(); None: now.

    Raises:
        PlanError: its command is not gone, or no host holds.
        Terminated: hosts may hold, but none is there.
        NfoldError: as `resume` does.
    """
    folder = RunFolder.open(path)
    refuse_while_loading("resume")
    folder.lock()
    begun = time.perf_counter() if begun_s is None else begun_s
    return _go_on(folder, None, {}, observer or NullObserver(), begun, must_hold=True)


def _go_on(
    folder: RunFolder,
    program: str | Path | None,
    wishes: Wishes,
    observer: Observer,
    begun_s: float,
    *,
    must_hold: bool = False,
) -> Run:
    """Go on with a run whose folder is locked."""
    try:
        refuse_unkept(folder.path, folder.record())
        folder.clear_halves()
        held, back = hosts_back(folder, wishes, observer.noted, must_hold=must_hold)
        steps_done = folder.last_step
        if held and (complete := _complete_run(folder, wishes)):
            forget_held(folder.path)
            folder.release()
            return complete
        wishes = {**held.wishes, **wishes} if held else wishes
        options, resumed = resumed_of(folder, wishes, len(back))
        source = _source_of(folder, program)
        if held is None:
            forget_held(folder.path)
    except BaseException:
        folder.release()
        raise
    if not resumed.checkpoint:
        observer.noted(_tell_anew(folder, steps_done))
    if options.hosts is None and (nodes := folder.record().nodes) is not None:
        observer.noted(f"note: no host comes or goes any more, as they did before; --nodes {nodes} lets them")
    job = Job(
        source,
        options,
        observer,
        folder=folder,
        resumed=resumed,
        begun_s=begun_s,
        is_listed=True,
        held=held,
        back=back,
    )
    return play_to_end(job)


def _tell_anew(folder: RunFolder, steps_done: int) -> str:
    if not steps_done:
        return f"note: the run in {folder.path} was begun and did no step, so it begins anew: nothing is lost"
    return (
        f"note: the run in {folder.path} wrote no checkpoint, so it begins anew: "
        f"the {count(steps_done, 'step')} in its history {'is' if steps_done == 1 else 'are'} done again"
    )


@takes_options(RunOptions)
def dry_run(program: Source, asked: RunOptions, wishes: Wishes) -> str:
    """Return the script, the commands or the request that would bring a run's hosts; nothing is submitted.

    Raises:
        NfoldError: the run asks for no hosts, or for some that it cannot have.
    """
    del asked
    from nfold.verbs.ranks.remote_hosts import dry_run as dry_run_of

    options = Options(**wishes)
    if options.target is None:
        raise PlanError("--dry-run shows how hosts are asked for, and this run asks for none. Add --on or --listen.")
    return dry_run_of(find_source(program), options, lambda _: None)


@takes_options(PlanOptions, without=WATCHING)
def plan(program: Source, asked: PlanOptions, wishes: Wishes) -> Plan:
    """Say what `train` would do, and why the other strategies lost. Measures the program, trains nothing.

    Args:
        program: as for `train`.
        cluster: machines, or the file that describes them, to plan for; None: this machine.
        out: the folder that `train` would write to; it is looked at and left as it is.
        workers, strategy, servers ..: as for `train`.

    Raises:
        NfoldError: as `train` does.
    """
    _check_wishes_of_plan(wishes)
    if asked.cluster is not None:
        from nfold.verbs.declared_plan import plan_declared

        return plan_declared(find_source(program), asked.cluster, wishes, NullObserver())
    job = Job(find_source(program), Options(**wishes), NullObserver(), folder=None, plan_only=True)
    for _ in job.play():
        raise InternalError("a plan played a step")
    if job.outcome.plan is None:
        raise InternalError("planning ended without a plan")
    return replace(job.outcome.plan, notes=(*job.outcome.plan.notes, *job.outcome.foretold))


def _check_wishes_of_plan(wishes: Wishes) -> None:
    out, fault = wishes.get("out"), wishes.get("fault")
    check_faults(fault or ())
    if fault:
        raise PlanError(f"--fault {fault[0]!r}: plan trains nothing that could go wrong. Leave it out, or use train.")
    check_out(out)
    if out is not None:
        RunFolder.try_out(out)


def why(path: str | Path) -> Report:
    """Read the report of a run.

    Raises:
        PlanError: there is none.
    """
    return RunFolder.open(path).report()


def play_to_end(job: Job) -> Run:
    """Play all steps and return the run."""
    for _ in job.play():
        pass
    return run_of(job)


def find_source(program: Source) -> ProgramSource | Program:
    """Return where a program is written, or the program itself where it is written nowhere.

    Raises:
        ProgramError: there is no such script, or it is being imported for a job already.
    """
    refuse_while_loading("train")
    if isinstance(program, Program):
        return program
    if isinstance(program, str | Path):
        return ProgramSource.parse(str(program))
    return ProgramSource.of(program)


def name_of(source: ProgramSource | Program) -> str:
    """Return the name that a new run's folder begins with."""
    return source.path.stem if isinstance(source, ProgramSource) else "run"


def _source_of(folder: RunFolder, moved: str | Path | None) -> ProgramSource:
    """Find a run's script where it was, or where it was moved to; a function that is not named stays the run's."""
    recorded = folder.record().source
    file, _, function = recorded.rpartition(":")
    if moved is not None:
        return ProgramSource.parse(str(moved), function=function)
    if not Path(file).is_file():
        raise ProgramError(
            f"the script of this run, {file}, does not exist any more. Where it was moved, say where it is now: "
            f"nfold train FILE.py --resume {shlex.quote(str(folder.path))}"
        )
    return ProgramSource.parse(recorded)
