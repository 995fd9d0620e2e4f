"""Everything that the guard knows when it decides. What is not known is None, and never a yes."""

from dataclasses import dataclass

from vllm_watch.state.attempt import Attempt


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """A person has said that nothing is to be restarted."""

    actor: str
    reason: str
    until_t: float | None = None  # Unix seconds; None: until somebody resumes


@dataclass(frozen=True, slots=True, kw_only=True)
class IncidentFact:
    """What is known of the incident that asks, at this moment."""

    open: bool
    restart_advised: bool
    silenced: bool = False
    outlived: bool = False  # was it last found in a process that another one has followed?


@dataclass(frozen=True, slots=True, kw_only=True)
class Peers:
    """The other members of the target's group and role, over all watchers that can be asked."""

    healthy: int  # that serve, without the one to be restarted
    total: int  # with it
    unknown: int = 0  # of which nothing recent is known; counted as not healthy


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What one blocker or lock said."""

    name: str
    free: bool | None  # None: it could not be asked
    text: str  # in words


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """The state of the world as one look saw it."""

    t: float  # Unix seconds: now
    state: str | None  # the worst state word of the server's engines; None: unknown
    hook: str | None  # the hook's name; None: none is configured
    attempts: tuple[Attempt, ...] | None = (
        None  # of the group, a week back, oldest first; None: unread
    )
    busy: str | None = None  # the attempt that this watcher carries or verifies for the target now
    breaker_reset_t: float = 0.0  # when a person last said: try again
    journal_refusal: str | None = None  # why nothing can be written down, in words
    pause: Pause | None = None
    incident: IncidentFact | None = None  # None where no incident asks
    load_seconds: float | None = None  # what this engine's start-ups took; None: none was seen
    supervisor_waits_until_t: float | None = None  # its own back-off between two starts
    start_failure: str | None = None  # why a start can not succeed, from the log or a crash loop
    peers: Peers | None = None
    version_first_t: float | None = None  # when this version of the watcher first ran here
    hook_answer: Answer | None = None  # may it be called for this server? None: not asked yet
    blockers: tuple[Answer, ...] | None = None  # None: not asked yet
    lock: Answer | None = None  # None: not asked yet
