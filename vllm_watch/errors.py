"""Errors that an operator can fix, with cause and remedy."""


class WatchError(Exception):
    """Shown without a traceback.

    `cause`: a sentence that quotes the wrong value; `remedy`: an instruction."""

    def __init__(self, cause: str, remedy: str) -> None:
        super().__init__(f"{cause}. {remedy}")
        self.cause = cause
        self.remedy = remedy


class ConfigError(WatchError):
    """`cause` begins with the path of the key or file."""


class ExpositionError(WatchError):
    """Malformed Prometheus text; `cause` names the line."""


class RecordingError(WatchError):
    """An unreadable trace; `cause` names file and line."""


class HookError(WatchError):
    """It cannot or will not act; certainly nothing was restarted."""


class ServeError(WatchError):
    """The address cannot be bound."""


class JournalError(WatchError):
    """The journal cannot be written or read."""


class StateError(WatchError):
    """The state folder cannot be used; the watcher continues without."""
