"""Lets the hosts of a run hold when its command is gone."""

import shlex
from collections.abc import Callable

from nfold.errors import PlanError
from nfold.verbs.options.option_checks import Options, Wishes, whole_numbers
from nfold.verbs.ranks.remote_hosts import RemoteHosts
from nfold.verbs.run_folder.files import HELD
from nfold.verbs.run_folder.folder import RunFolder
from nfold.verbs.run_folder.held_hosts import KEPT, HeldHosts, forget_held, read_held, save_held
from nfold.verbs.running.reunite import reunite

NOBODY: tuple[None, tuple[str, ...]] = (None, ())


def hold(options: Options, hosts: RemoteHosts, folder: RunFolder, say: Callable[[str], None]) -> None:
    """Let the hosts hold from now on, where they are to and it can be written down how they are found again."""
    if not options.hold_s:
        return
    held = HeldHosts(
        host=hosts.control_server.host,
        port=hosts.control_server.port,
        token=hosts.token,
        hold_s=options.hold_s,
        nodes=str(options.hosts),
        on=options.on,
        listen=options.listen,
        **{name: getattr(options, name) for name in KEPT},
    )
    try:
        save_held(folder.path, held)
    except OSError as error:
        say(f"note: hosts end with this command and do not hold: cannot write {folder.path / HELD}: {error.strerror}")
        return
    hosts.pool.hold(f"On the machine of the run: nfold resume {shlex.quote(str(folder.path.absolute()))}")


def hosts_back(
    folder: RunFolder, wishes: Wishes, say: Callable[[str], None], *, must_hold: bool
) -> tuple[HeldHosts | None, tuple[str, ...]]:
    """Return how the hosts of a run that hold are reached, and which are back; what they hold is kept by then.

    Args:
        folder: of the run, locked.
        wishes: of who goes on with it.
        say: is given lines for the user.
        must_hold: whether there must be some.

    Raises:
        PlanError: there must be some, and are none.
        NfoldError: as `reunite` does.
    """
    held = read_held(folder.path)
    if held is not None and held.are_asked_for(wishes) and (back := _reunite(folder, held, wishes, say)):
        return held, back
    forget_held(folder.path)
    if must_hold:
        raise PlanError(
            f"no host of the run in {folder.path} holds: its command ended in order, or their time (--hold-for) is "
            f"over. Go on from its last checkpoint: {folder.resume_command}"
        )
    return NOBODY


def _reunite(folder: RunFolder, held: HeldHosts, wishes: Wishes, say: Callable[[str], None]) -> tuple[str, ...]:
    total_steps = whole_numbers(wishes).get("steps") or folder.record().total_steps
    return reunite(folder, held, say, total_steps=total_steps)
