"""A planning question -> the same of other machines, or of another program: what `changes.py` asks."""

from collections.abc import Callable
from dataclasses import replace

from nfold.core.cluster import Node
from nfold.core.profile import Profile
from nfold.planning.inputs.facts import Facts as Question


def with_nodes(question: Question, change: Callable[[Node], Node]) -> Question:
    """Return the question with `change` made to every node of its cluster."""
    nodes = tuple(change(node) for node in question.cluster.nodes)
    return replace(question, cluster=replace(question.cluster, nodes=nodes))


def with_profiles(question: Question, change: Callable[[Profile], Profile]) -> Question:
    """Return the question with `change` made to the profile of every number of threads."""
    return replace(question, profiles={threads: change(each) for threads, each in question.profiles.items()})


def without_input(profile: Profile) -> Profile:
    """Return the profile of a program whose data is always there."""
    return replace(profile, load_s_per_sample=0.0)


def without_updates(profile: Profile) -> Profile:
    """Return the profile of a program whose optimizer takes no time."""
    return replace(profile, update=replace(profile.update, median_s=0.0))


def without_computing(profile: Profile) -> Profile:
    """Return the profile of a program whose forward and backward take no time."""
    whole = tuple(
        replace(each, forward=replace(each.forward, median_s=0.0), backward=replace(each.backward, median_s=0.0))
        for each in profile.whole
    )
    return replace(profile, whole=whole)
