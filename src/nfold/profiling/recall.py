"""Uses again what was measured of a program by an earlier run, if all that it hangs on is the same and it still holds.

A graph follows from the program, so the key has to tell programs apart: by all files and environment variables that
were read while it was loaded, and by what it turned out to be (weights, a first pass, items, optimizer). What is read
only while it is measured is kept beside, and compared as well. Seconds follow from the machine as it is now, so a pass
is timed beside those that were kept.
"""

import os
import time
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

import torch

from nfold.cache import ReadRecorder, Store, code_of_nfold, content_of, key_of, this_machine
from nfold.capture import program_batches
from nfold.capture.computing.random import LOCK, RandomState
from nfold.capture.optimizers.stepping import Stepping
from nfold.capture.program.building import build_model
from nfold.capture.program.calling import call
from nfold.capture.program.trial import try_step
from nfold.core import codec
from nfold.core.measured import Measured
from nfold.core.outputs import ModuleOutput, first_difference
from nfold.core.profile import ChunkTiming
from nfold.core.text.units import count
from nfold.machine.limits import available_cores
from nfold.profiling.measure import Clock, Meter
from nfold.profiling.program_profile import device_kind, undisturbed
from nfold.program import Program

APART = 0.25
"""Of a pass, by which two measurements of one program on one machine may differ, and by which its passes may vary."""
_LONGEST_PASS_S = 0.25
"""Where there is a choice, no longer pass is timed."""
_CHECK_S = 0.1
_ROUNDING = 0.01
"""Of what two machines may differ by, what one does from run to run."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """What shall be measured, and what is known of the program by now."""

    program: Program
    dataset: Any
    """Its training data."""
    chunk_sizes: tuple[int, ...]
    thread_counts: tuple[int, ...]
    told: Mapping[str, Any]
    """What the rank found when it loaded the program; JSON."""
    device: torch.device
    anew: bool = False
    """Whether to measure, whatever is kept."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FirstPass:
    """What the modules made of two samples, as ranks compare it. A processor may round otherwise the next time."""

    samples: int
    """Their checksum."""
    outputs: tuple[ModuleOutput, ...]

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> "FirstPass":
        """Read it as a rank tells it: `samples`, and `outputs` as JSON of ModuleOutput."""
        return cls(samples=told["samples"], outputs=tuple(codec.decode(ModuleOutput, each) for each in told["outputs"]))

    def equals(self, other: "FirstPass") -> bool:
        """Return whether both are of one program: the same samples, and outputs that differ by rounding alone."""
        return self.samples == other.samples and not first_difference(self.outputs, other.outputs, scale=_ROUNDING)


@dataclass(frozen=True, kw_only=True, slots=True)
class Kept:
    """A measurement and what the program read while it was made, beyond what is in its key."""

    measured: Measured
    first_pass: FirstPass
    files: dict[str, str]
    variables: dict[str, str | None]


class Recall:
    """Finds, checks and keeps measurements, for a process that has watched its program being loaded."""

    def __init__(self, source: str, store: Store, recorder: ReadRecorder, *, clock: Clock = time.perf_counter) -> None:
        """Args:
        source: where the program is written, with its function.
        store: where measurements are kept.
        recorder: of what was read while the program was loaded.
        clock: gives seconds.
        """
        self._source, self._store, self.recorder, self._clock = source, store, recorder, clock

    def measured(self, asked: Asked, measure: Callable[[Asked], Measured]) -> tuple[Measured, str]:
        """Return what a program costs, and what to say of it: empty, if it was not known before.

        Args:
            asked: what is wanted.
            measure: does it anew.
        """
        with self.recorder.watching():
            steps = _steps_of(asked.program)
        files, variables, told = self.recorder.files(), self.recorder.variables(), ""
        if files is None or steps is None or asked.told["first_pass"] is None:
            return measure(asked), told  # nobody can say what the program hangs on
        key = key_of({**self._parts(asked), "files": files, "variables": variables, "steps": steps})
        first_pass = FirstPass.of(asked.told["first_pass"])
        known = None if asked.anew else self._read(key, first_pass)
        if known is not None:
            holds, told = self._compare(asked, known)
            if holds:
                return _without_tracer(known), told
        with self.recorder.watching():
            found = measure(asked)
        self._keep(key, found, first_pass, files.keys(), variables.keys())
        return found, told

    def _parts(self, asked: Asked) -> dict[str, Any]:
        return {
            "nfold": code_of_nfold(),
            "torch": [torch.__version__, torch.version.git_version, torch.__config__.show()],
            "machine": this_machine(),
            "device": device_kind(asked.device),
            "source": self._source,
            "program": asked.program,
            "told": {name: value for name, value in asked.told.items() if name != "first_pass"},
            "chunk_sizes": asked.chunk_sizes,
            "thread_counts": asked.thread_counts,
        }

    def _read(self, key: str, first_pass: FirstPass) -> Measured | None:
        document = self._store.read(key)
        try:
            kept = None if document is None else codec.decode(Kept, document)
        except (codec.CodecError, TypeError):
            return None
        if kept is None or not kept.first_pass.equals(first_pass):
            return None
        if any(content_of(name) != content for name, content in kept.files.items()):
            return None
        if any(os.environ.get(name) != value for name, value in kept.variables.items()):
            return None
        return kept.measured

    def _keep(
        self, key: str, found: Measured, first_pass: FirstPass, files: Container[str], variables: Container[str]
    ) -> None:
        """Keep a measurement, unless a file that it hangs on has changed meanwhile.

        Args:
            key: of it.
            found: that is kept.
            first_pass: of the program.
            files: that are in the key.
            variables: that are in the key.
        """
        read = self.recorder.files()
        if read is None:
            return
        kept = Kept(
            measured=found,
            first_pass=first_pass,
            files={name: content for name, content in read.items() if name not in files},
            variables={name: value for name, value in self.recorder.asked.items() if name not in variables},
        )
        self._store.write(key, codec.encode(kept))

    def _compare(self, asked: Asked, known: Measured) -> tuple[bool, str]:
        """Time a pass; return whether it takes as long as it did, and the sentence that says so."""
        threads = asked.thread_counts[0]
        then = _affordable(known.profiles[threads].whole)
        now_s = self._pass_s(asked, then.chunk_size, threads)
        then_s = then.forward.median_s + then.backward.median_s
        varied_s = then.forward.spread_s + then.backward.spread_s
        holds = abs(now_s - then_s) <= APART * then_s + min(varied_s, APART * then_s)
        timed = f"a pass of {then.chunk_size} samples with {count(threads, 'thread')}"
        took = f"{timed} takes {1e3 * now_s:.3g} ms and took {1e3 * then_s:.3g}"
        if holds:
            return True, f"note: measurements of an earlier run are used: {took}; --measure-again measures anew"
        return False, f"note: measured again: {took} when an earlier run measured this program"

    def _pass_s(self, asked: Asked, size: int, threads: int) -> float:
        """Time forward and backward as the profile does."""
        share = available_cores()
        meter = Meter(clock=self._clock).for_cores(share.cores)
        with undisturbed(threads):
            model = build_model(asked.program, meter.device)
            batch = program_batches(asked.program, asked.dataset, meter.device).batch(size)

            def a_pass() -> float:
                begin_s = meter.now()
                torch.autograd.backward(asked.program.loss(call(model, batch[0]), batch[1]))
                return meter.now() - begin_s

            try_step(model, asked.program.loss, batch)
            return median(meter.repeat(a_pass, _CHECK_S / min(1.0, share.cores)))


def _affordable(whole: tuple[ChunkTiming, ...]) -> ChunkTiming:
    """Return the largest chunk whose pass is short, or the smallest there is."""
    short = [each for each in whole if each.forward.median_s + each.backward.median_s <= _LONGEST_PASS_S]
    return short[-1] if short else whole[0]


def _without_tracer(known: Measured) -> Measured:
    """Return what was measured by a process that had loaded the tracer, as one that has not holds it."""
    return replace(known, profiles={count: replace(each, tracer_bytes=0) for count, each in known.profiles.items()})


def _steps_of(program: Program) -> list[str] | None:
    """Return what optimizer and schedule say of themselves; None: they cannot be built, as the capture will tell."""
    with LOCK:
        before = RandomState()
        try:
            weights = [
                (n, p) for n, p in build_model(program, torch.device("cpu")).named_parameters() if p.requires_grad
            ]
            stepper = Stepping.of(program).build(weights)
        except Exception:
            return None
        finally:
            before.restore()
    scheduler = stepper.scheduler
    found: list[Any] = [type(stepper.optimizer), stepper.optimizer]
    if scheduler is not None:
        found += [type(scheduler), scheduler.state_dict()]
    return [repr(each) for each in found]
