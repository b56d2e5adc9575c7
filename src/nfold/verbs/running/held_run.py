"""Lets the hosts of a run hold when its command is gone."""

import contextlib
import shlex
import signal
import time
from collections.abc import Callable
from dataclasses import replace

from nfold.core.text.units import seconds
from nfold.errors import PlanError, Terminated
from nfold.launch.stopping import hearing
from nfold.verbs.options.option_checks import Options, Wishes, whole_numbers
from nfold.verbs.ranks.remote_hosts import RemoteHosts
from nfold.verbs.run_folder.files import HELD
from nfold.verbs.run_folder.folder import RunFolder
from nfold.verbs.run_folder.held_hosts import KEPT, HeldHosts, forget_held, read_held, save_held
from nfold.verbs.running.reunite import FIRST_S, reunite

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
    folder: RunFolder,
    wishes: Wishes,
    say: Callable[[str], None],
    *,
    must_hold: bool,
    now: Callable[[], float] = time.time,
) -> tuple[HeldHosts | None, tuple[str, ...]]:
    """Return how the hosts of a run that hold are reached, and which are back; what they hold is kept by then.

    Args:
        folder: of the run, locked.
        wishes: of who goes on with it.
        say: is given lines for the user.
        must_hold: whether there must be some.
        now: gives seconds since 1970.

    Raises:
        PlanError: there must be some, and are none; or others are asked for while these may hold.
        Terminated: there must be some, and may be, but none is back; or SIGTERM, and all hold on.
        NfoldError: as `reunite` does.
    """
    held, begun_s = read_held(folder.path), now()
    is_wanted = held is not None and held.are_asked_for(wishes)
    if held is not None and is_wanted:
        if held.gone_s is not None:
            _write(folder, replace(held, gone_s=None))  # whoever is heard now holds as long again afterwards
        if back := _reunite(folder, held, wishes, say):
            return held, back
    if held is not None and now() <= (until_s := held.until_s(begun_s)):
        _write(folder, replace(held, gone_s=begun_s if held.gone_s is None else held.gone_s))
        say(_tell_without(folder, held, until_s, is_wanted=is_wanted, must_hold=must_hold))
        return NOBODY
    forget_held(folder.path)
    if must_hold:
        raise PlanError(
            f"no host of the run in {folder.path} holds: its command ended in order, their time (--hold-for) is over, "
            f"or they do not hold, as emulated ones. Go on from its last checkpoint: {folder.resume_command}"
        )
    return NOBODY


def _tell_without(folder: RunFolder, held: HeldHosts, until_s: float, *, is_wanted: bool, must_hold: bool) -> str:
    """Say what it means to go on without hosts that may hold.

    Raises:
        PlanError: others are asked for.
        Terminated: there must be some, and none is back.
    """
    may = f"may hold until {time.strftime('%Y-%m-%d %H:%M', time.localtime(until_s))}"
    again = _again(folder)
    if not is_wanted:
        raise PlanError(
            f"the hosts of the run in {folder.path} {may}, and may be further than its last checkpoint. To go on with "
            f"them, type: {again}. To go on with others, and lose what these hold, remove {folder.path / HELD} first."
        )
    late = f"host of the run is back at {held.host}, port {held.port}, after {seconds(FIRST_S)}. Hosts {may}"
    if must_hold:
        raise Terminated(
            f"No {late}: type {again} once more. To go on from the last checkpoint, and lose what they hold, type: "
            f"{folder.resume_command}"
        )
    return f"note: no {late}, but this goes on without them, and what they hold is lost"


def _write(folder: RunFolder, held: HeldHosts) -> None:
    with contextlib.suppress(OSError):  # where the disk is full, nobody can go on with the run either
        save_held(folder.path, held)


def _reunite(folder: RunFolder, held: HeldHosts, wishes: Wishes, say: Callable[[str], None]) -> tuple[str, ...]:
    def leave_as_they_are() -> None:
        raise Terminated(f"Hosts of the run hold on: type {_again(folder)} once more.")

    total_steps = whole_numbers(wishes).get("steps") or folder.record().total_steps
    with hearing(leave_as_they_are, signals=(signal.SIGTERM,), is_end=False):
        return reunite(folder, held, say, total_steps=total_steps)


def _again(folder: RunFolder) -> str:
    return f"nfold resume {shlex.quote(str(folder.path))}"
