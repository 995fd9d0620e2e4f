"""What restarts are carried out with; the daemon builds it from the configuration."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from vllm_watch.restart.facts import Answer
from vllm_watch.restart.hooks.base import Hook
from vllm_watch.restart.locks.base import Lock
from vllm_watch.restart.policy import Policy
from vllm_watch.settings.restart import BlockersSettings, RestartSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """Each is asked anew for every wish, so that a reload takes effect at once."""

    hook: Callable[[str], Hook | None]  # by its name
    lock: Callable[[RestartSettings], Lock | None]  # a new one for each attempt; None: none is set
    ask_blockers: Callable[[BlockersSettings], Awaitable[tuple[Answer, ...]]]
    policy: Callable[[RestartSettings], Policy]
    holder: str  # who we are among watchers: host and process
