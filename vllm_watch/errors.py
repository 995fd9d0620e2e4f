"""Errors that an operator can fix: each has a cause and a remedy."""


class WatchError(Exception):
    """An error shown as `cause` (one sentence, with the wrong value) and `remedy` (an instruction), never as a traceback."""

    def __init__(self, cause: str, remedy: str) -> None:
        super().__init__(f"{cause}. {remedy}")
        self.cause = cause
        self.remedy = remedy


class ConfigError(WatchError):
    """An invalid configuration; `cause` begins with the path of the key or of the file."""


class ExpositionError(WatchError):
    """A /metrics body that is not the Prometheus text format; `cause` names the line."""


class RecordingError(WatchError):
    """A trace file that cannot be read; `cause` names the file and the line."""


class HookError(WatchError):
    """A restart hook that cannot act; it has certainly not restarted anything."""


class ServeError(WatchError):
    """The daemon cannot bind its address."""


class JournalError(WatchError):
    """The journal, which must be on disk before a restart, cannot be written or read."""


class StateError(WatchError):
    """The state folder cannot be used; the watcher continues without saved state."""
