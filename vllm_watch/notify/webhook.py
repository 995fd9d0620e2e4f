"""Send messages as a signed POST of JSON."""

import asyncio
import json
from pathlib import Path

from vllm_watch.clients import signed_post
from vllm_watch.clients.signed_post import Posted
from vllm_watch.errors import Finding, WatchError
from vllm_watch.notify import base
from vllm_watch.notify.words import Message
from vllm_watch.settings.notifications import WebhookNotifier
from vllm_watch.support import regular_file

_BAD_MESSAGE = (400, 413, 415, 422)
"""Statuses that reject the message itself. A 401 or 404 rejects every message."""


class Notifier:
    """Posts each message and judges the answer by its status."""

    def __init__(self, settings: WebhookNotifier, tools: base.Tools) -> None:
        self._settings = settings
        self._tools = tools

    async def send(self, message: Message) -> base.Sent:
        settings, now = self._settings, self._tools.unix_time()
        body = json.dumps(message.payload, ensure_ascii=False).encode()
        try:
            headers = await asyncio.to_thread(self._headers, message.key, body, now)
        except WatchError as error:
            return base.Sent(outcome=base.UNSENT, text=error.cause)
        session, seconds = self._tools.session, settings.timeout_seconds
        return _judged(await signed_post.post(session, settings.url, body, headers, seconds, now))

    def check(self) -> list[Finding]:
        found = []
        for key, does in (("secret_file", "signed"), ("bearer_file", "sent with a token")):
            file: Path | None = getattr(self._settings, key)
            if file is None:
                if key == "secret_file":
                    text = "messages are not signed: anyone who knows the URL can send them"
                    found.append(Finding(ok=True, text=text, remedy="set secret_file"))
                continue
            try:
                signed_post.read_secret(file, key)
            except WatchError as error:
                found.append(Finding(ok=False, text=error.cause, remedy=error.remedy))
                continue
            found.append(Finding(ok=True, text=f"messages are {does}"))
            if why := regular_file.exposure(file.stat()):
                text = f"{key}: {why}"
                found.append(Finding(ok=False, text=text, remedy=f"chmod 600 {file}"))
        return found

    def _headers(self, key: str, body: bytes, now: float) -> dict[str, str]:
        """Read the secrets for each message, because they may be rotated."""
        settings = self._settings
        secret = None
        if settings.secret_file is not None:
            secret = signed_post.read_secret(settings.secret_file, "secret_file")
        headers = signed_post.headers(key, secret, body, now)
        if settings.bearer_file is not None:
            token = signed_post.read_secret(settings.bearer_file, "bearer_file")
            if not (token.isascii() and token.decode("ascii").isprintable()):
                raise WatchError("bearer_file holds no token", "write one line of plain characters")
            headers["Authorization"] = f"Bearer {token.decode('ascii')}"
        return headers


def _judged(posted: Posted) -> base.Sent:
    status, text, again = posted.status, posted.text, posted.retry_after_seconds
    if posted.end in (signed_post.NOT_REACHED, signed_post.UNTRUSTED):
        return base.Sent(outcome=base.UNSENT, text=text)
    if status is None or status >= 500:  # noqa: PLR2004
        return base.Sent(outcome=base.UNSURE, text=text, retry_after_seconds=again)
    if 200 <= status < 300:  # noqa: PLR2004
        return base.Sent(outcome=base.SENT, text=text)
    if 300 <= status < 400:  # noqa: PLR2004
        text = f"{text}: redirects are not followed; set url to the final address"
    outcome = base.REFUSED if status in _BAD_MESSAGE else base.UNSENT
    return base.Sent(outcome=outcome, text=text, retry_after_seconds=again)
