"""Where ranks are forked from a template: in few words, since a command asks before all else is imported."""

from nfold.verbs.options.target import read_target


def are_forked(*, debug: object, emulate: object, on: str | None, listen: str | None) -> bool:
    """Return whether ranks are processes of this machine itself.

    On the nodes of an emulated cluster each is a program of its own, and other hosts have templates themselves.

    Args:
        debug: whether ranks are threads.
        emulate: a cluster, or its file.
        on: what brings hosts, as typed.
        listen: where hosts join, as typed.

    Raises:
        PlanError: there are no such hosts.
    """
    return not debug and not emulate and read_target(on, listen) is None
