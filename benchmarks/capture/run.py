"""Where do the seconds of capturing a deep net go?

.venv/bin/python benchmarks/capture/run.py [NET ..]     one thread, a minute; --profile PHASE prints its functions
"""

import argparse
import contextlib
import cProfile
import functools
import importlib
import pstats
import sys
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from deep import NETS

from nfold.capture import capture_program
from nfold.capture.program.building import build_model
from nfold.program import Program

sys.path.insert(0, str(Path(__file__).parents[1]))
from environment import stamp, write

COPIES = "copies"
PHASES = {
    COPIES: "side_effects.module_states.fresh_copies",
    "trial steps": "program_facts._call",
    "proof": "proof.prove.prove",
    "trials of parts": "independence.divisible.why_indivisible",
    "one sample": "independence.least_samples.find_least",
    "weights beside": "side_effects.weights_beside.weights_beside",
    "trace": "tracing.fx_tracing.trace",
    "plays": "tracing.observe.observe",
    "cut": "cutting.operator_cut.cut",
    "description": "describe.describe",
    "gate": "gate.pass_gate",
    "optimizer": "capture._with_updates",
}
"""Functions of `nfold.capture`, each without those of other phases that it calls."""


class Stopwatch:
    """Adds up the seconds of phases, each without those inside of it."""

    def __init__(self, profiled: str = "") -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._inside: list[float] = []
        self._profiled, self.profile = profiled, cProfile.Profile()

    def timed(self, phase: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the same function, watched."""

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            begin_s = time.process_time()
            self._inside.append(0.0)
            with self.profile if phase == self._profiled else contextlib.nullcontext():
                result = function(*args, **kwargs)
            took_s, inside_s = time.process_time() - begin_s, self._inside.pop()
            self.seconds[phase] += took_s - inside_s
            if self._inside:
                self._inside[-1] += took_s
            return result

        return call


@contextlib.contextmanager
def watched(watch: Stopwatch) -> Iterator[None]:
    """Put watched functions wherever nfold's modules have imported those of the phases."""
    originals = []
    for phase, path in PHASES.items():
        place, _, name = path.rpartition(".")
        function = getattr(importlib.import_module(f"nfold.capture.{place}"), name)
        for module in [each for key, each in sys.modules.items() if key.startswith("nfold.")]:
            if vars(module).get(name) is function:
                originals.append((module, name, function))
                setattr(module, name, _copier(watch, function) if phase == COPIES else watch.timed(phase, function))
    try:
        yield
    finally:
        for module, name, function in originals:
            setattr(module, name, function)


def _copier(watch: Stopwatch, fresh_copies: Callable[..., Any]) -> Callable[..., Any]:
    """Return what makes watched copies: copying itself takes the time, not finding out how."""
    return lambda *args, **kwargs: watch.timed(COPIES, fresh_copies(*args, **kwargs))


def captured(program: Program, profiled: str = "") -> dict[str, Any]:
    """Capture a program once, and return its size and the seconds of each phase."""
    model, watch = build_model(program, torch.device("cpu")), Stopwatch(profiled)
    modules = sum(1 for each in model.modules() if not list(each.children()))
    with watched(watch):
        begin_s, begin_cpu_s = time.perf_counter(), time.process_time()
        graph = capture_program(model, program, program.train_data()).graph
        total_s, processor_s = time.perf_counter() - begin_s, time.process_time() - begin_cpu_s
    if profiled:
        pstats.Stats(watch.profile).sort_stats("tottime").print_stats(30)
    phases = {phase: round(watch.seconds[phase], 2) for phase in PHASES}
    return {
        "modules": modules,
        "operators": len(graph.operators),
        "capture": graph.capture,
        "unproved": graph.unproved,
        "indivisible": graph.indivisible,
        "total_s": round(total_s, 2),
        "processor_s": round(processor_s, 2),
        **phases,
        "other": round(processor_s - sum(watch.seconds.values()), 2),
    }


def main() -> None:
    """Capture each net, print a table and write result.json."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("nets", nargs="*", help=f"some of {', '.join(NETS)}; all, and result.json, without")
    options.add_argument("--profile", default="", choices=tuple(PHASES), help="a phase")
    chosen = options.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    captured(NETS["resnet50"]())  # loads what following needs
    found = {}
    for name in chosen.nets or NETS:
        found[name] = captured(NETS[name](), chosen.profile)
        print(name, *(f"{key} {value}" for key, value in found[name].items()), sep="\n  ", flush=True)
    if not chosen.nets:
        write({**stamp(), "nets": found}, __file__)


if __name__ == "__main__":
    main()
