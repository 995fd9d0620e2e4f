"""All that the model of an attempt (model.py) can come to, breadth first."""

from collections import deque

from tests.restart.model import OPEN, Guards, State, Step, watcher, world

ALL = Guards()

Came = dict[State, Step | None]  # each state, and the step and state that it was first reached from


def explored(guards: Guards = ALL) -> tuple[Came, State | None]:
    """All that can be reached, or all up to the nearest state in which something broke, and that."""
    came: Came = {State(): None}
    left = deque(came)
    while left:
        s = left.popleft()
        for step, after in (*world(s), *watcher(s, guards)):
            if after not in came:
                came[after] = step, s
                left.append(after)
                if after.broken:
                    return came, after
    return came, None


def forgotten(came: Came, guards: Guards = ALL) -> list[State]:
    """From where, with a disk and a lock that are all right, no steps of the watcher lead to where nothing is under way
    and who is sick is paged for."""
    fair = {s._replace(full=False, lock=True) for s in came if s.at}
    before: dict[State, list[State]] = {}
    left, seen = deque(fair), set(fair)
    while left:
        s = left.popleft()
        for _, after in watcher(s, guards):
            before.setdefault(after, []).append(s)
            if after not in seen:
                seen.add(after)
                left.append(after)
    ended = (s for s in seen if s.at == "idle" and s.mind == s.disk and s.disk not in OPEN)
    good = {s for s in ended if s.paged or not s.sick}
    left = deque(good)
    while left:
        new = [s for s in before.get(left.popleft(), ()) if s not in good]
        good.update(new)
        left.extend(new)
    return [s for s in fair if s not in good]


def story(came: Came, s: State) -> list[str]:
    """The steps that led there."""
    steps: list[str] = []
    while (step := came[s]) is not None:
        steps.insert(0, step[0])
        s = step[1]
    return steps
