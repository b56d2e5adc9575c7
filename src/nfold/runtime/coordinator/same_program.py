"""Whether a run goes on with the program that it was begun with: an edited one would train something else. Pure."""

from collections.abc import Iterable, Mapping
from typing import Any

from nfold.core import codec
from nfold.core.job import Begun, JobSettings, Recipe
from nfold.core.options.averages import Averages, averaged
from nfold.core.options.best_model import check_keep
from nfold.errors import ProgramError
from nfold.runtime.control import commands as cmd


def recipe_of(ready: dict[str, Any]) -> Recipe:
    """Return the recipe of the program that a rank has loaded, from its reply."""
    return Recipe(
        num_samples=ready["num_samples"],
        autocast=ready["autocast"],
        has_scheduler=ready["has_scheduler"],
        clip_norm=ready["clip_norm"],
        order=ready["orders"]["0"][1] if ready["orders"] else None,
        has_collate=ready["has_collate"],
        averages=averages_of(ready),
        items=ready["items"],
        gradients=ready["gradients"]["checksum"] if "gradients" in ready else None,
    )


def averages_of(ready: dict[str, Any]) -> Averages | None:
    """Return the averages of weights that the program asks for, from a rank's reply."""
    return codec.decode(Averages, ready["averages"]) if ready["averages"] else None


def check_wishes(settings: JobSettings, ready: dict[str, Any], recipe: Recipe) -> None:
    """Refuse a best model by a metric that the program does not have, and to go on with another program.

    Raises:
        PlanError: with the metrics that it has.
        ProgramError: as `check_same_program`.
    """
    if settings.kept is not None:
        metrics = [*ready["metrics"], *(map(averaged, ready["metrics"]) if averages_of(ready) else ())]
        check_keep(settings.kept, metrics, has_test=bool(ready["has_test"]), evaluates=settings.evaluate)
    if settings.begun is not None:
        check_same_program(settings.begun, ready["batch_size"], recipe)


def check_same_program(begun: Begun, batch_size: int, recipe: Recipe) -> None:
    """Refuse to go on with a program whose steps are others now.

    Raises:
        ProgramError: with what it was and what it is.
    """
    was, now = [f"a batch size of {begun.batch_size}"], [f"a batch size of {batch_size}"]
    if begun.recipe is not None:
        was += _words(begun.recipe)
        now += _words(recipe)
    else:
        was.append(f"{begun.steps_per_epoch} steps an epoch")
        now.append(f"{-(-recipe.num_samples // batch_size)} steps an epoch")
    if difference := _first_difference(was, now):
        raise ProgramError(
            f"the run was begun with {difference[0]}, and the program has {difference[1]} now. Put it back, or begin a "
            "new run."
        )
    if begun.recipe is not None:
        _check_same_items(begun.recipe.items or {}, recipe.items or {})


def check_same_recipe(batch_size: int, recipe: Recipe, ready: dict[str, Any]) -> None:
    """Refuse a member whose program trains something else than the others'.

    Args:
        batch_size: of the others.
        recipe: of the others.
        ready: what the member told of its program.

    Raises:
        ProgramError: with what they have and what it has.
    """
    ours = [f"a batch size of {batch_size}", *_words(recipe)]
    theirs = [f"a batch size of {ready['batch_size']}", *_words(recipe_of(ready))]
    if difference := _first_difference(ours, theirs):
        raise ProgramError(f"its program has {difference[1]}, and the job's has {difference[0]}.")


def _first_difference(ours: list[str], theirs: list[str]) -> tuple[str, str] | None:
    return next((pair for pair in zip(ours, theirs, strict=True) if pair[0] != pair[1]), None)


def _check_same_items(was: Mapping[str, int | None], now: Mapping[str, int | None]) -> None:
    """Refuse data of which an item is another one now, if it can be read then and now.

    Raises:
        ProgramError: it names the first that differs.
    """
    for index, checksum in was.items():
        if None not in (checksum, now.get(index)) and checksum != now[index]:
            raise ProgramError(
                f"the run was begun with other data: item {index} of train_data() had the checksum {checksum}, and has "
                f"{now[index]} now. Give it the same data, or begin a new run. If nobody changed them, train_data() "
                "must not depend on the process: what it draws must be drawn inside of it, from torch's, numpy's or "
                "Python's own generator, and the order of a set is another one in each process (use sorted())."
            )


def _words(recipe: Recipe) -> list[str]:
    return [
        f"{recipe.num_samples} samples {'in train_data()' if recipe.order is None else 'an epoch'}",
        f"autocast={recipe.autocast!r}",
        "a scheduler" if recipe.has_scheduler else "no scheduler",
        "no clip_norm" if recipe.clip_norm is None else f"clip_norm={recipe.clip_norm}",
        "no sampler" if recipe.order is None else f"a sampler of checksum {recipe.order}",
        "a collate" if recipe.has_collate else "no collate",
        "no averages" if recipe.averages is None else str(recipe.averages),
        "no --exact" if recipe.gradients is None else f"--exact and first gradients of checksum {recipe.gradients}",
    ]


def tell_kept(built: Iterable[dict[str, Any]], recipe: Recipe) -> list[cmd.Command]:
    """Say which hyper-parameters of the checkpoint are used although the program has others, if any."""
    kept = {key: pair for reply in built for key, pair in reply["kept"].items()}
    if not kept:
        return []
    named = ", ".join(f"{key} {_value(saved)} (not {_value(own)})" for key, (saved, own) in sorted(kept.items()))
    until = ", until the schedule sets them" if recipe.has_scheduler else ""
    return [
        cmd.Noted(
            f"note: the optimizer goes on with the checkpoint's {named}, whatever the program says now{until}. "
            "Begin a new run to change them."
        )
    ]


def _value(plain: Any) -> str:
    return f"({', '.join(map(_value, plain))})" if isinstance(plain, (list, tuple)) else str(plain)
