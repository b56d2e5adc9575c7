"""Options as keywords of a verb: for who calls it, for type checkers and editors, and for `help()`."""

import functools
import inspect
from collections.abc import Callable, Collection
from dataclasses import fields
from typing import Any, Concatenate, ParamSpec, TypeVar

from nfold.core.options.run_options import OPTIONS
from nfold.verbs.options.option_checks import Wishes

P = ParamSpec("P")
S = TypeVar("S")
R = TypeVar("R")


def takes_options(
    keywords: Callable[P, object], *, without: Collection[str] = ()
) -> Callable[[Callable[[S, Any, Wishes], R]], Callable[Concatenate[S, P], R]]:
    """Return a decorator for a verb, which is given its first argument, all its keywords, and what options were given.

    Args:
        keywords: a dataclass of the options and of what else the verb takes; made as it is, without any check.
        without: fields of it that the verb does not take.

    Raises:
        TypeError: (by the verb) a keyword is none of these.
    """

    def decorate(verb: Callable[[S, Any, Wishes], R]) -> Callable[Concatenate[S, P], R]:
        made: Any = keywords
        first = next(iter(inspect.signature(verb).parameters.values()))
        named = [
            inspect.Parameter(each.name, inspect.Parameter.KEYWORD_ONLY, default=each.default, annotation=each.type)
            for each in fields(made)
            if each.name not in without
        ]
        signature = inspect.signature(verb).replace(parameters=[first, *named])

        @functools.wraps(verb)
        def checked(*args: Any, **kwargs: Any) -> R:
            try:
                given = signature.bind(*args, **kwargs).arguments
            except TypeError as error:
                raise TypeError(f"{verb.__name__}() {error}") from None
            about = given.pop(first.name)
            wishes = {name: value for name, value in given.items() if name in OPTIONS}
            return verb(about, made(**given), wishes)

        checked.__signature__ = signature  # type: ignore[attr-defined]
        return checked

    return decorate
