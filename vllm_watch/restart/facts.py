"""Everything that the guard knows when it decides. What is not known is None, which is never a yes."""

from dataclasses import dataclass

from vllm_watch.incidents.incident import Incident
from vllm_watch.state.attempt import Attempt


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """A person has paused all restarts."""

    actor: str
    reason: str
    until_t: float | None = None  # Unix seconds; None: until somebody resumes


@dataclass(frozen=True, slots=True, kw_only=True)
class Peers:
    """How the target's group is, counted in engines."""

    healthy: int  # without the target, which is about to be restarted
    total: int  # with the target
    unknown: int = 0  # no recent look; counted as not healthy


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a hook, a blocker or a lock said when it was asked."""

    name: str
    allows: bool | None  # None: it could not be asked
    text: str  # in words


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What holds for one target at one moment."""

    t: float  # Unix seconds: now
    state: str | None  # the worst state of the server's engines; None: unknown
    attempts: tuple[Attempt, ...] | None  # of the group, a week back, oldest first; None: unread
    busy: str | None = None  # id of the target's attempt that this watcher runs or verifies
    breaker_reset_t: float = 0.0  # when a person last resumed
    journal_refusal: str | None = None  # why the journal cannot be relied on, in words
    pause: Pause | None = None
    incident: Incident | None = None  # the one that asks, as the board shows it
    stale: str | None = "it was not scraped"  # why the last look says nothing of now, in words
    replaced: str | None = None  # why it is not the process that the request was made for, in words
    condition: str | None = None  # why its schedule's conditions do not hold, in words
    revoked: str | None = None  # why the person who asks may not (any more), in words
    silenced: bool = False  # has a person silenced that incident?
    startup_seconds: float | None = None  # how long this engine takes to start; None: never seen
    start_failure: str | None = None  # why no start can succeed, from the log or a crash loop
    peers: Peers | None = None
    version_first_t: float | None = None  # when this version of the watcher first ran here
    hook: Answer | None = None  # None: not asked yet
    blockers: tuple[Answer, ...] | None = None  # None: not asked yet
    gang: tuple[Answer, ...] | None = ()  # of those that are restarted with it; None: not asked yet
    lock: Answer | None = None  # None: not asked yet
    asker: str | None = (
        None  # the rank of its gang that asks for this one, too; None: it asks itself
    )
