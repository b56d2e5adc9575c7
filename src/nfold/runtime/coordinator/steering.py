"""Hands steps to the user's loop, one at a time: what it does after a step is the same at any speed. Pure.

    loop       asks for step k ──────────────────────────────────────> asks for step k + 1
    ranks                       step k, its checkpoint, its evaluation
    handed out                                                       k, with its metrics

Ranks never run ahead of the loop, so who leaves it after step k has the weights of step k. That costs a step the way to
the coordinator and back, and that messages of one step cannot overlap with the next.
"""

from nfold.runtime.control import commands as cmd


class Steering:
    """How far the user's loop lets ranks train; without a loop, to the end."""

    def __init__(self, first_step: int, *, is_looped: bool) -> None:
        self._is_looped, self._handed = is_looped, first_step
        self._asked = first_step

    def ask(self) -> None:
        """Note that the loop wants the next step, and nothing more of the last one."""
        self._asked += 1

    def allowed(self, total: int) -> int:
        """Return the step before which ranks stop."""
        return min(total, self._asked) if self._is_looped else total

    def hand_out(self, done: int, granted: int, *, is_waiting: bool) -> list[cmd.Command]:
        """Return the step that has just been done with all that is due after it, the first time.

        Args:
            done: steps that all ranks have reported.
            granted: steps that they were ordered to play.
            is_waiting: a checkpoint or an evaluation has not come yet.
        """
        if not self._is_looped or is_waiting or done < granted or self._handed >= done:
            return []
        self._handed = done
        return [cmd.Settled(done)]

    @property
    def handed(self) -> int:
        """The step that the loop was handed last, though all may have gone back to an earlier one since."""
        return self._handed

    def is_held(self, done: int) -> bool:
        """Whether the loop may still want something of the last step."""
        return self._is_looped and self._asked <= done
