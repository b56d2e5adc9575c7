"""What is known of a run before its first step: what would end it is refused, what would surprise is told. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from nfold.core.graph import ModelGraph
from nfold.core.options.averages import Averages
from nfold.core.options.host_range import HostRange
from nfold.core.options.protection import read_protect
from nfold.core.plan import Plan
from nfold.core.text.units import count
from nfold.errors import ProgramError
from nfold.planning.residency.epoch_steps import EpochSteps

_MUCH = 0.1
"""Share of a run that nobody wants to spend with a learning rate of nothing."""
_MOST_TRIED = 64
"""Batch sizes beside the program's that are looked at for one that leaves enough samples."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunSteps:
    """The steps of a run: how many there are, and how they are spread over epochs."""

    num_samples: int
    """Of the epochs that come last."""
    batch_size: int
    total_steps: int
    first_step: int = 0
    """Steps that were done before it goes on."""
    spread: EpochSteps | None = None
    """Over epochs that differ; None: all have as many steps."""

    @property
    def steps_per_epoch(self) -> int:
        """The number of steps of an epoch; the last one may have fewer samples."""
        return -(-self.num_samples // self.batch_size)

    @property
    def by_epoch(self) -> EpochSteps:
        """Which steps belong to which epoch."""
        return self.spread or EpochSteps.even(self.steps_per_epoch)

    @property
    def epochs(self) -> float:
        """The number of epochs that the steps make up; not always whole."""
        return self.total_steps / self.steps_per_epoch

    @property
    def last_batch(self) -> int:
        """Samples of the shorter batch that ends an epoch; 0: there is none, or no step that is left comes to it."""
        is_reached = self.by_epoch.next_end(self.first_step) <= self.total_steps
        return self.num_samples % self.batch_size if is_reached else 0


@dataclass(frozen=True, kw_only=True, slots=True)
class ScheduleEnd:
    """The step after which a schedule of the learning rate fails."""

    steps: int
    """For which it lasts."""
    error: str
    """What it raises after the next one."""


def check_schedule(end: ScheduleEnd | None, run_steps: RunSteps) -> None:
    """Refuse a run that is longer than its schedule.

    Raises:
        ProgramError: with both numbers.
    """
    if end is None or end.steps >= run_steps.total_steps:
        return
    shorter = f", or use --steps {end.steps}" if end.steps > run_steps.first_step else ""
    done = f", {run_steps.first_step} of them done" if run_steps.first_step else ""
    raise ProgramError(
        f"Program(scheduler=...) lasts {_steps(end.steps)}, and the run has {run_steps.total_steps} "
        f"({_epochs(run_steps)}{done}): after step {end.steps + 1} it raises {end.error}. "
        f"Give it {run_steps.total_steps} steps{shorter}."
    )


def fade_notes(fade: int | None, run_steps: RunSteps) -> tuple[str, ...]:
    """Return a note for the user if a schedule's learning rate is next to nothing for the rest of the run."""
    if fade is None or run_steps.total_steps - fade < run_steps.total_steps * _MUCH:
        return ()
    return (
        f"Program(scheduler=...) has brought the learning rate to less than a millionth of its largest after "
        f"{_steps(fade)} of {run_steps.total_steps}, and it stays there. A schedule is stepped after each step, of "
        f"which an epoch has {run_steps.steps_per_epoch}: count in steps, not in epochs",
    )


def mean_notes(names: list[str], run_steps: RunSteps) -> tuple[str, ...]:
    """Return a note for the user if something of the test data is no mean over samples, as a rank or an F1 is none."""
    if not names:
        return ()
    told = f"{names[0]} is no mean" if len(names) == 1 else f"{', '.join(names)} are no means"
    return (
        f"{told} over samples: a few samples of the test data together give another value than the mean over halves of "
        f"them. What is reported is the mean over batches of {run_steps.batch_size}",
    )


def check_last_batch(graph: ModelGraph, run_steps: RunSteps) -> None:
    """Refuse a run that comes to a batch of fewer samples than the program computes on.

    However such a batch is cut, a chunk of it has no more samples.

    Raises:
        ProgramError: with the numbers, the module, and what would do.
    """
    left = run_steps.last_batch
    if not 0 < left < graph.least_samples:
        return
    who = f"module {graph.least_samples_module}" if graph.least_samples_module else "the program"
    step = run_steps.by_epoch.next_end(run_steps.first_step)
    better = None if graph.only_samples else _better_batch_size(run_steps, graph.least_samples)
    advice = [f"a batch size of {better}"] if better else []
    if step - 1 > run_steps.first_step:
        advice.append(f"--steps {step - 1}")
    advice.append("another number of items in train_data()")
    raise ProgramError(
        f"the last batch of an epoch has {left} sample{'s' if left > 1 else ''}, since {run_steps.num_samples} samples "
        f"are cut into batches of {run_steps.batch_size}, and {who} does not compute on so few: step {step} would give "
        f"{graph.least_samples_error}. Use {', or '.join(advice)}."
    )


def _better_batch_size(run_steps: RunSteps, least: int) -> int | None:
    """Return the batch size nearest to the program's that leaves nothing, or enough."""
    own = run_steps.batch_size
    near = sorted(range(max(least, own - _MOST_TRIED), own + _MOST_TRIED), key=lambda size: (abs(size - own), -size))
    fits = (size for size in near if size <= run_steps.num_samples)
    return next(
        (size for size in fits if run_steps.num_samples % size == 0 or run_steps.num_samples % size >= least), None
    )


def room_notes(hosts: HostRange | None, chunks: int) -> tuple[str, ...]:
    """Say for how many hosts the chunks of a batch have room, which is settled for the whole run.

    Args:
        hosts: that may train; None: they stay the same.
        chunks: of a batch.
    """
    if hosts is None:
        return ()
    if chunks < hosts.most:
        return (f"a batch has {count(chunks, 'chunk')}, so no more than as many of {hosts.most} hosts can compute",)
    return (f"a batch keeps its {count(chunks, 'chunk')} however many of {hosts.most} hosts train; --chunks sets it",)


def snapshot_notes(protect: object, *, is_on: bool, is_replicated: bool) -> tuple[str, ...]:
    """Say what it takes, and brings, that ranks keep snapshots.

    Args:
        protect: as it was asked for.
        is_on: whether they do.
        is_replicated: whether each rank has the whole state, too.
    """
    if not is_on:
        return ()
    if is_replicated:
        return (
            "no step is lost with a host, since each rank has the whole state; snapshots in memory are kept all the "
            "same, for a host that vanishes as a step ends",
        )
    most = read_protect(protect).most_steps
    costs = f"at most {count(most, 'step')}" if most else "as few steps as pay; --protect K sets how many"
    return (f"each rank keeps snapshots of what it trains in memory, so that a lost host costs {costs}",)


def run_notes(
    run_steps: RunSteps, *, checkpoint_every: int | None, has_metrics: bool, has_test: bool
) -> tuple[str, ...]:
    """Return notes for the user that follow from the number of steps of a run."""
    return tuple(_run_notes(run_steps, checkpoint_every, has_metrics, has_test))


def _run_notes(run_steps: RunSteps, every: int | None, has_metrics: bool, has_test: bool) -> Iterator[str]:
    left = run_steps.total_steps - run_steps.first_step
    if every and every > run_steps.total_steps:
        yield (
            f"--checkpoint-every {every} is more than the {_steps(run_steps.total_steps)} of the run: "
            f"the only checkpoint is the one at its end"
        )
    elif every and left > 0 and run_steps.first_step // every == (run_steps.total_steps - 1) // every:
        yield (
            f"--checkpoint-every {every}: none falls into the {_steps(left)} that are left, "
            "so the only new checkpoint is the one at the end"
        )
    if has_metrics and not has_test:
        yield "metrics are of test data, and the program has none: give Program(test_data=...)"


def tried_note(unproved: str, plan: Plan) -> str:
    """Say what could not be proved of a program's samples, and when it is tried instead; empty where none sees others.

    Args:
        unproved: see `ModelGraph`.
        plan: how the program is spread.
    """
    if not unproved or plan.chunks == 1:
        return ""
    chunks = zip(*plan.placement.owners.values(), strict=True)
    is_whole = not plan.splits and any(len(set(ranks)) == 1 for ranks in chunks)
    by = "" if is_whole else ", by each rank for what it computes"
    again = f"again at steps 1, 2, 4, 8 .. and with inputs unlike all before{by}"
    return f"it is tried, not proved, that samples do not see each other, {again}: {unproved}"


def averages_notes(averages: Averages | None, run_steps: RunSteps, graph: ModelGraph) -> tuple[str, ...]:
    """Return notes for the user about the averages of weights."""
    if averages is None:
        return ()
    if not averages.count(run_steps.total_steps, run_steps.steps_per_epoch):
        return (f"{averages} takes no weights in the {_steps(run_steps.total_steps)} of the run: no average is kept",)
    if graph.statistics and not averages.use_buffers:
        return (
            "batch norms of the averaged weights have the model's own statistics: before you use them, call "
            "torch.optim.swa_utils.update_bn with your data, or average statistics too: Averages(use_buffers=True)",
        )
    return ()


def loaders_notes(asked: int, useful: int, ranks: int) -> tuple[str, ...]:
    """Return what to know of more loaders than cores keep busy.

    Args:
        asked: loaders of each rank.
        useful: of them, those that the cores of a rank can keep busy by what reading was measured to take.
        ranks: that have loaders.
    """
    if asked <= useful:
        return ()
    who, in_all = (f"each of {ranks} ranks", f", {asked * ranks} in all") if ranks > 1 else ("the rank", "")
    return (
        f"--loaders {asked}: {who} starts {asked} processes that read{in_all}, and its share of "
        f"the cores keeps {useful} of them busy: more read no faster, and each takes memory and seconds to start. "
        f"--loaders {useful} does as well",
    )


def mode_notes(parts: Sequence[str]) -> tuple[str, ...]:
    """Return notes about parts of a model that `model()` leaves in eval mode, since nfold trains all in train mode."""
    if not parts:
        return ()
    more = f" and {len(parts) - 1} more" if len(parts) > 1 else ""
    return (
        f"module {parts[0]}{more} of the model was built in eval mode and computes in train mode, as after "
        "model.train(). To keep it in eval mode, say so in the model: "
        f"def train(self, mode=True): super().train(mode); self.get_submodule({parts[0]!r}).eval(); return self",
    )


def time_notes(
    run_steps: RunSteps, step_s: float, limit_s: float | None, checkpoint_every: int | None
) -> tuple[str, ...]:
    """Return what a time limit will cut off, by prediction.

    Args:
        run_steps: of the run.
        step_s: predicted for a step; reading, evaluating and writing come on top.
        limit_s: the limit; None: there is none.
        checkpoint_every: steps between checkpoints; None: at each end of an epoch; 0: none.
    """
    left = run_steps.total_steps - run_steps.first_step
    if limit_s is None or left * step_s <= limit_s:
        return ()
    every = run_steps.steps_per_epoch if checkpoint_every is None else checkpoint_every
    done = int(limit_s / step_s)
    told = f"about {done} of the {_steps(left)} fit into {limit_s:g} s, at {step_s:.3g} s a step, as predicted"
    if done < 1:
        return (f"not one step fits into {limit_s:g} s: it takes {step_s:.3g} s, as predicted",)
    until_kept = every - run_steps.first_step % every if every else 0
    if every and done < until_kept:
        told += f": the time is over before the first checkpoint, which is due after {_steps(until_kept)}"
    elif done < run_steps.steps_per_epoch:
        told += f": less than an epoch, which has {_steps(run_steps.steps_per_epoch)}"
    return (told,)


def _epochs(run_steps: RunSteps) -> str:
    count = f"{run_steps.epochs:.3g}"
    return f"{count} epoch{'s' if count != '1' else ''} of {run_steps.steps_per_epoch}"


def _steps(count: int) -> str:
    return f"{count} step{'s' if count != 1 else ''}"
