"""Send messages through the library apprise, which runs in threads because it blocks."""

import importlib.util
import logging
import re
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from vllm_watch.errors import Finding, WatchError
from vllm_watch.notify import base
from vllm_watch.notify.words import Message, clean
from vllm_watch.settings.notifications import AppriseNotifier
from vllm_watch.support import regular_file, threads
from vllm_watch.support.redaction import HIDDEN, redact_always

if TYPE_CHECKING:
    from apprise import NotifyBase

URLS_MAX = 50
URLS_BYTES_MAX = 64 << 10
SAID_MAX = 300
PIECE_CHARACTERS_MIN = 4
"""Parts of a URL with at least this many characters are treated as secrets."""

MISSING = "the library apprise is not installed"
INSTALL = "pip install 'vllm-watch[apprise]'"

_TALKATIVE = ("apprise", "requests", "urllib3")
"""Libraries that log whole URLs, which contain tokens."""

_TYPES = {"page": "failure", "ticket": "warning", "info": "info"}


class Notifier:
    """Sends each message to every URL. A retry skips URLs that accepted the message."""

    def __init__(self, settings: AppriseNotifier, tools: base.Tools) -> None:
        self._settings = settings
        self._tools = tools
        self._busy = False
        self._taken: tuple[str, set[str]] = "", set()  # a message's key, URLs that accepted it

    async def send(self, message: Message) -> base.Sent:
        if self._busy:
            text = "the last try has not ended yet: a service hangs"
            return base.Sent(outcome=base.UNSURE, text=text)

        def work() -> base.Sent:
            try:
                return self._send(message)
            except Exception as error:  # noqa: BLE001 - its text may hold a token
                text = f"apprise failed: {type(error).__name__}"
                return base.Sent(outcome=base.UNSURE, text=text)
            finally:
                self._busy = False

        self._busy = True
        try:
            return await threads.run(work, self._settings.timeout_seconds)
        except TimeoutError:
            text = f"no answer within {self._settings.timeout_seconds:g} s"
            return base.Sent(outcome=base.UNSURE, text=text)

    def check(self) -> list[Finding]:
        if importlib.util.find_spec("apprise") is None:
            return [Finding(ok=False, text=MISSING, remedy=INSTALL)]
        try:
            urls = self._urls()
        except WatchError as error:
            return [Finding(ok=False, text=error.cause, remedy=error.remedy)]
        found = []
        for number, url in enumerate(urls, 1):
            with _LogCapture(urls):
                service = _service(url)
            name = _scheme(url)
            if service is None:
                text = f"apprise does not accept URL {number} ({name})"
                remedy = "see https://github.com/caronc/apprise/wiki for the form of each service"
                found.append(Finding(ok=False, text=text, remedy=remedy))
            else:
                found.append(Finding(ok=True, text=f"URL {number} is for {name}"))
        return found

    def _send(self, message: Message) -> base.Sent:
        try:
            urls = self._urls()
        except WatchError as error:
            return base.Sent(outcome=base.UNSENT, text=error.cause)
        if importlib.util.find_spec("apprise") is None:
            return base.Sent(outcome=base.UNSENT, text=f"{MISSING}: {INSTALL}")
        key, taken = self._taken
        if key != message.key:
            taken = set()
        failed: list[str] = []
        for number, url in enumerate(urls, 1):
            if url in taken:
                continue
            with _LogCapture(urls) as said:
                service = _service(url)
                ok = service is not None and _notify(service, message)
            if ok:
                taken.add(url)
            else:
                failed.append(f"URL {number} ({_scheme(url)}): {said.text()}")
        self._taken = message.key, taken
        if failed:
            text = clean("; ".join(failed), SAID_MAX)
            return base.Sent(outcome=base.UNSURE, text=text)
        return base.Sent(outcome=base.SENT, text=f"{len(urls)} taken")

    def _urls(self) -> list[str]:
        """Read the URLs for each message, because tokens may be rotated. Raises WatchError."""
        settings = self._settings
        if settings.urls_file is None:
            name = settings.urls_variable or ""
            text = self._tools.environ.get(name, "")
            where, remedy = f"the variable {name}", "set it to apprise URLs"
        else:
            text, where, remedy = self._file(), "urls_file", "write one apprise URL a line"
        lines = (line.strip() for line in re.split(r"\s+" if settings.urls_file is None else r"\n", text))  # fmt: skip
        urls = [line for line in lines if line and not line.startswith("#")]
        if not urls:
            raise WatchError(f"{where} holds no URL", remedy)
        for url in urls:
            redact_always(url)
        return urls[:URLS_MAX]

    def _file(self) -> str:
        file = self._settings.urls_file
        assert file is not None  # noqa: S101
        try:
            return regular_file.read(file, URLS_BYTES_MAX, if_exposed="refused").decode()
        except OSError as error:
            cause = f"urls_file cannot be read: {error.strerror}"
            raise WatchError(cause, "name a file that vllm-watch may read") from None
        except ValueError:
            raise WatchError("urls_file is not text", "write one apprise URL a line") from None


def _service(url: str) -> "NotifyBase | None":
    import apprise  # noqa: PLC0415 - an extra, and slow to load

    # Use no disk cache and no thread pool.
    asset = apprise.AppriseAsset(
        async_mode=False, secure_logging=True, storage_mode="memory", app_id="vllm-watch",
        app_desc="vllm-watch", image_url_mask="", image_url_logo="",
    )  # fmt: skip
    return apprise.Apprise.instantiate(url, asset=asset)


def _notify(service: "NotifyBase", message: Message) -> bool:
    """Send Markdown, which apprise converts. Services that accept only plain text get plain text."""
    taken: Any = service.notify_format
    several = taken if isinstance(taken, tuple | list) else (taken,)
    formats = {str(getattr(each, "value", each)) for each in several}
    plain = formats == {"text"}
    done = message.phase == "resolved"
    return bool(service.notify(
        body=message.text if plain else message.markdown, title=message.title,
        body_format="text" if plain else "markdown",
        notify_type="success" if done else _TYPES.get(message.severity, "info"),
    ))  # fmt: skip


class _LogCapture(logging.Handler):
    """Captures apprise's log, without any part of the URLs."""

    def __init__(self, urls: Sequence[str]) -> None:
        super().__init__(logging.WARNING)
        self._pieces = sorted({piece for url in urls for piece in _pieces(url)}, key=len)[::-1]
        self._lines: list[str] = []

    def __enter__(self) -> "_LogCapture":
        for name in _TALKATIVE:
            logging.getLogger(name).propagate = False
        logging.getLogger("apprise").addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        logging.getLogger("apprise").removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        if record.thread == threading.get_ident() and len(self._lines) < URLS_MAX:
            self._lines.append(record.getMessage()[:2000])

    def text(self) -> str:
        line = self._lines[-1] if self._lines else "it was not accepted"
        for piece in self._pieces:
            line = line.replace(piece, HIDDEN)
        return clean(line, SAID_MAX)


def _scheme(url: str) -> str:
    """Return the scheme or "no URL". A line without a scheme may be a secret."""
    found = re.match(r"([a-z0-9]{1,30})://", url)
    return found[1] if found else "no URL"


def _pieces(url: str) -> set[str]:
    rest = url.partition("://")[2] or url
    parts = {rest, *re.split(r"[/:@?&=,;#\s]+", rest)}
    parts |= {unquote(each) for each in parts}
    return {each for each in parts if len(each) >= PIECE_CHARACTERS_MIN}
