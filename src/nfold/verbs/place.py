"""place: where training samples should live on described machines, what moves there, and who should compute."""

import os
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from nfold.core.cluster import Cluster
from nfold.core.options.whole import whole
from nfold.core.residency import METHODS, Method, ResidencyPlan, TrafficKind
from nfold.core.text.cluster_file import read_cluster
from nfold.core.text.durations import duration_s
from nfold.core.text.quantities import num_bytes
from nfold.errors import PlanError, RunError
from nfold.launch.emulation.cgroups import with_quotas
from nfold.planning.inputs.facts import Facts
from nfold.planning.residency.best_place import TIME_LIMIT_S
from nfold.planning.residency.best_place import place as plan_places
from nfold.planning.residency.model.problem import Demand, Problem, problem_of
from nfold.planning.residency.model.program_rates import program_rates
from nfold.planning.residency.model.traffic import Traffic
from nfold.verbs.declared_plan import measure_alone
from nfold.verbs.options.keywords import takes_options
from nfold.verbs.options.option_checks import Options, Wishes
from nfold.verbs.running.observer import NullObserver, Observer
from nfold.verbs.train import Source, find_source
from nfold.view.html import place_page, place_svg

TRAFFICS: tuple[TrafficKind, ...] = get_args(TrafficKind)
_PICTURES = {".html": place_page, ".svg": place_svg}
EPOCHS = 10
BATCH = 128


@dataclass(frozen=True, kw_only=True, slots=True)
class PlaceOptions:
    """Keywords of `place`."""

    program: Source | None = None
    epochs: int = EPOCHS
    method: Method = "auto"
    traffic: TrafficKind = "ring"
    batch: int | None = None
    batch_up_to: int | None = None
    gradient: str | None = None
    activations: str | None = None
    without: Collection[str] = ()
    time_limit: float | str = TIME_LIMIT_S
    observer: Observer | None = None


@takes_options(PlaceOptions)
def place(cluster: str | Path | Cluster, asked: PlaceOptions, wishes: Wishes) -> ResidencyPlan:
    """Say which training samples should move between nodes, who should train on what, and what that brings.

    The machines are taken at their word. Nothing moves and nothing trains.

    Args:
        cluster: nodes, of which some say how many samples live there; or its file.
        program: is measured on this machine; unless given, nodes say how fast they train.
        epochs: of the run; 10 unless given.
        method: auto, nothing, equal, ilp, greedy, lp, waterfill, overlap or joint.
        traffic: how gradients are summed, ring or server; or `pipeline`, whose stages pass on activations instead.
        batch: samples of a step; the program's, or 128, unless given.
        batch_up_to: the largest batch that is allowed; only the one that was asked for, unless given.
        gradient: its size, `1 MB`; the program's, or none, unless given.
        activations: of one sample, that a stage of a pipeline passes on, `100 kB`.
        without: names of nodes that shall hold and compute nothing.
        time_limit: for the integer program; 60 seconds unless given.
        observer: is shown what happens.

    Raises:
        NfoldError: something is missing, or no plan can do what was asked.
    """
    del wishes
    _check(asked)
    limit_s = duration_s(asked.time_limit, "--time-limit")
    nodes = with_quotas(cluster if isinstance(cluster, Cluster) else read_cluster(cluster))
    return plan_places(_problem(nodes, asked), asked.method, limit_s)


def check_picture(path: str | Path) -> None:
    """Refuse a picture of another kind than can be drawn, or where none can be written.

    Raises:
        PlanError: its name says none of the kinds, or its folder takes no file.
    """
    if Path(path).suffix not in _PICTURES:
        raise PlanError(f"--picture {path}: its name must end in {' or '.join(_PICTURES)}")
    folder = Path(path).absolute().parent
    if not (folder.is_dir() and os.access(folder, os.W_OK)):
        raise PlanError(f"--picture {path}: there is no folder {folder} that can be written to. Use another one.")


def write_picture(plan: ResidencyPlan, path: str | Path) -> None:
    """Draw a plan into a file, of the kind that its name says, whole or not at all.

    Raises:
        PlanError: as `check_picture` does.
        RunError: it cannot be written.
    """
    check_picture(path)
    whole_path, temporary = Path(path), Path(f"{path}.partial")
    try:
        temporary.write_text(_PICTURES[whole_path.suffix](plan), encoding="utf-8")
        temporary.replace(whole_path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise RunError(f"cannot write the picture {path}: {error.strerror}") from error


def _check(asked: PlaceOptions) -> None:
    if asked.method not in METHODS:
        raise PlanError(f"--method {asked.method}: it must be one of {', '.join(METHODS)}")
    if asked.traffic not in TRAFFICS:
        raise PlanError(f"--traffic {asked.traffic}: it must be one of {', '.join(TRAFFICS)}")
    numbers = {"--epochs": asked.epochs, "--batch": asked.batch, "--batch-up-to": asked.batch_up_to}
    for flag, value in numbers.items():
        if value is not None and (whole(value) or 0) < 1:
            raise PlanError(f"{flag} {value}: it must be a whole number of at least 1")


def _problem(nodes: Cluster, asked: PlaceOptions) -> Problem:
    gradient = None if asked.gradient is None else float(num_bytes(asked.gradient))
    if asked.program is None:
        demand = _demand(asked, asked.batch or BATCH, gradient or 0.0)
        return problem_of(nodes, demand, rates={}, excluded=asked.without)
    measured = _measured(asked.program, asked.observer or NullObserver())
    found = program_rates(measured, nodes)
    demand = _demand(asked, asked.batch or measured.batch_size, found.gradient_bytes if gradient is None else gradient)
    return problem_of(nodes, demand, rates=found.samples_per_s, update_s=found.update_s, excluded=asked.without)


def _demand(asked: PlaceOptions, batch_size: int, gradient_bytes: float) -> Demand:
    if asked.batch_up_to is not None and asked.batch_up_to < batch_size:
        raise PlanError(f"--batch-up-to {asked.batch_up_to}: less than the batch of {batch_size}. Ask for more.")
    if (asked.activations is not None) != (asked.traffic == "pipeline"):
        raise PlanError(
            "--traffic pipeline needs --activations, what a stage passes on of one sample; others send none."
        )
    activation_bytes = 0 if asked.activations is None else num_bytes(asked.activations) * batch_size
    traffic = Traffic(kind=asked.traffic, gradient_bytes=gradient_bytes, activation_bytes=activation_bytes)
    return Demand(epochs=asked.epochs, batch_size=batch_size, traffic=traffic, most_batch=asked.batch_up_to)


def _measured(program: Source, observer: Observer) -> Facts:
    outcome = measure_alone(find_source(program), Options(workers=1), observer)
    assert outcome.measured is not None, "measuring ends with what it found"
    return outcome.measured.question
