"""Errors that an operator can fix, with cause and remedy, and the findings of checks."""

from dataclasses import dataclass


class WatchError(Exception):
    """An error that is shown as `cause` and `remedy`, without a traceback."""

    def __init__(self, cause: str, remedy: str) -> None:
        super().__init__(f"{cause}. {remedy}")
        self.cause = cause
        self.remedy = remedy


class ConfigError(WatchError):
    """An invalid configuration. `cause` begins with the path of the key or file."""


class ExpositionError(WatchError):
    """A /metrics body is not in the Prometheus text format. `cause` names the line."""


class RecordingError(WatchError):
    """A trace file cannot be read or written. `cause` names the file."""


class HookError(WatchError):
    """A restart hook cannot act, and has not restarted anything."""


class ServeError(WatchError):
    """The daemon cannot bind its address."""


class JournalError(WatchError):
    """The journal cannot be written or read. Without a journal, nothing is restarted."""


class StateError(WatchError):
    """The state folder or one entry cannot be used. The watcher continues without it."""

    def __init__(self, cause: str, remedy: str, reason: str = "refused") -> None:
        super().__init__(cause, remedy)
        self.reason = reason  # one of state.file.REASONS


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The result of one check of a configuration, or of one step of a rehearsal."""

    ok: bool
    text: str
    remedy: str | None = None
