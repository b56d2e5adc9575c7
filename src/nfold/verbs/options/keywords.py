"""Options as keywords of a verb."""

import functools
import inspect
from collections.abc import Callable, Collection
from dataclasses import fields
from typing import Any, TypeVar, cast

from nfold.core.options import RunOptions

V = TypeVar("V", bound=Callable[..., Any])


def takes_options(*, without: Collection[str] = ()) -> Callable[[V], V]:
    """Return a decorator: the verb's signature has the options in place of its `**wishes`, and refuses all else.

    Args:
        without: options that the verb does not take, beside those that its own parameters stand for.

    Raises:
        TypeError: (by the verb) a keyword is neither its own nor an option.
    """

    def with_options(verb: V) -> V:
        own = inspect.signature(verb)
        parameters = {name: each for name, each in own.parameters.items() if each.kind is not each.VAR_KEYWORD}
        for each in fields(RunOptions):
            if each.name not in (*without, *own.parameters):
                parameters[each.name] = inspect.Parameter(
                    each.name, inspect.Parameter.KEYWORD_ONLY, default=each.default, annotation=each.type
                )
        signature = own.replace(parameters=list(parameters.values()))

        @functools.wraps(verb)
        def checked(*args: Any, **kwargs: Any) -> Any:
            signature.bind(*args, **kwargs)
            return verb(*args, **kwargs)

        checked.__signature__ = signature  # type: ignore[attr-defined]
        return cast("V", checked)

    return with_options
