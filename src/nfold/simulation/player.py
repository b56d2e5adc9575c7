"""One rank in virtual time: which task may go next, and what each end of a task sets free."""

from collections import defaultdict
from collections.abc import Callable

from nfold.core.schedule import RankSchedule
from nfold.core.tasks import COMMITTED, MessageEnd, Task
from nfold.core.trace import Span, span_of


class Player:
    """Decides what a rank does next in a step; `begin` is told when a task can start and ends it through `finish`."""

    def __init__(
        self,
        schedule: RankSchedule,
        begin: Callable[[int, Task], None],
        step: int,
        begin_s: float,
        *,
        commits: bool = False,
    ) -> None:
        self.spans: list[Span] = []
        self.rank = schedule.rank
        self.step = step
        self.begin_s = begin_s
        self.end_s = begin_s
        self._begin = begin
        compute = [task for task in schedule.tasks if not isinstance(task, MessageEnd)]
        last = COMMITTED if commits else ()
        self._lane = [task for task in compute if not isinstance(task, last)]
        self._first_committed = len(self._lane)
        self._lane += [task for task in compute if isinstance(task, last)]
        self._messages_left = len(schedule.tasks) - len(compute)
        self._next = 0
        self._lane_is_free = True
        self._missing: dict[int, int] = {}
        self._start_s: dict[int, float] = {}
        self._left = {task.id: task for task in schedule.tasks}
        self._listeners: defaultdict[int, list[Task]] = defaultdict(list)
        for task in schedule.tasks:
            events = task.after if len(task.after) < 2 else set(task.after)
            self._missing[task.id] = len(events)
            for event in events:
                self._listeners[event].append(task)

    def start(self, now_s: float) -> None:
        """Begin all messages that wait for nothing, and the first task of the compute lane, at `now_s`."""
        self.end_s = now_s
        for task in list(self._left.values()):
            if isinstance(task, MessageEnd) and not self._missing[task.id]:
                self._play(task, now_s)
        self._advance_lane(now_s)

    @property
    def step_s(self) -> float:
        """The seconds from the beginning of the step to the end of its last task so far."""
        return self.end_s - self.begin_s

    @property
    def is_done(self) -> bool:
        """Whether every task has ended."""
        return not self._left

    def happen(self, event: int, now_s: float) -> None:
        """Note an event of this rank and begin what has waited for it. O(its listeners)."""
        for task in self._listeners.pop(event, ()):
            self._missing[task.id] -= 1
            if not self._missing[task.id] and isinstance(task, MessageEnd):
                self._play(task, now_s)
        self._advance_lane(now_s)

    def finish(self, task: Task, now_s: float) -> None:
        """End a task: record its span and let its event happen."""
        del self._left[task.id]
        num_bytes = task.payload_bytes if isinstance(task, MessageEnd) else 0
        start_s, self.end_s = self._start_s.pop(task.id), now_s
        self.spans.append(span_of(self.rank, task, start_s - self.begin_s, now_s - self.begin_s, num_bytes))
        if isinstance(task, MessageEnd):
            self._messages_left -= 1
        else:
            self._lane_is_free = True
        self.happen(task.id, now_s)

    def stuck(self) -> list[str]:
        """Describe the tasks that have not ended, for the message of a deadlock."""
        return [self._describe(task) for task in self._left.values()]

    def _advance_lane(self, now_s: float) -> None:
        if not self._lane_is_free or self._next == len(self._lane):
            return
        if self._next >= self._first_committed and self._messages_left:
            return
        task = self._lane[self._next]
        if not self._missing[task.id]:
            self._next += 1
            self._lane_is_free = False
            self._play(task, now_s)

    def _play(self, task: Task, now_s: float) -> None:
        self._start_s[task.id] = now_s
        self._begin(self.rank, task)

    def _describe(self, task: Task) -> str:
        where = f"rank {self.rank}: {task.name}"
        if self._missing[task.id]:
            waits = [str(event) for event in task.after if task in self._listeners.get(event, ())]
            return f"{where} waits for event {', '.join(waits)}"
        if isinstance(task, MessageEnd) and task.id in self._start_s:
            return f"{where} waits for tag {task.tag} of rank {task.peer}"
        return f"{where} waits for the compute lane"
