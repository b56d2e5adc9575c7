"""The keywords that a verb takes from Python."""

import inspect

import pytest

from nfold.verbs.compare import compare
from nfold.verbs.train import plan, resume, start, train


@pytest.mark.parametrize("verb", [train, plan, start, resume], ids=lambda verb: verb.__name__)
def test_a_signature_names_every_option_with_its_default(verb):
    parameters = inspect.signature(verb).parameters
    assert (parameters["first_step_within"].default, parameters["evaluate"].default) == (300.0, True)
    assert not any(each.kind is each.VAR_KEYWORD for each in parameters.values())


@pytest.mark.parametrize(
    ("verb", "wrong"),
    [(train, "worker"), (compare, "strategy"), (compare, "stop_after"), (start, "go_on"), (plan, "prometheus")],
    ids=["train", "compare", "comparison", "start", "plan"],
)
def test_a_keyword_that_is_no_option_of_the_verb_is_refused_before_anything_is_looked_at(verb, wrong):
    with pytest.raises(TypeError, match=rf"{verb.__name__}\(\) got an unexpected keyword argument '{wrong}'"):
        verb("no such file.py", **{wrong: 2})


def test_a_comparison_takes_several_numbers_of_workers():
    assert inspect.signature(compare).parameters["workers"].default == (1, 2, 4)
