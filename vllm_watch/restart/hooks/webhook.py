"""Restart by a signed POST of JSON to a webhook. Runbook: docs/hooks/webhook.md.

A request is retried only if it certainly did nothing (no connection, 429, 503).
"""

import asyncio
import json
from itertools import count

from vllm_watch.clients import signed_post
from vllm_watch.clients.signed_post import Posted
from vllm_watch.errors import Finding, WatchError
from vllm_watch.restart.hooks import base
from vllm_watch.settings.hooks import WebhookHook

WAIT_SECONDS_FIRST = 0.5  # doubled each time
WAIT_SECONDS_MAX = 30.0
"""The wait after a Retry-After header is at most this long, because the attempt holds a lock meanwhile."""
_TRY_AGAIN = (429, 503)


class Hook(base.Hook):
    """Posts the call and judges the answer by its status."""

    _settings: WebhookHook

    async def check(self, call: base.HookCall) -> str | None:
        self._secret()
        return None

    async def act(self, call: base.HookCall) -> base.HookResult:
        deadline = asyncio.get_running_loop().time() + self._settings.timeout_seconds
        body, secret = json.dumps(call.payload()).encode(), self._secret()
        for number in count():
            left = deadline - asyncio.get_running_loop().time()
            posted = await self._post(call, body, secret, left)
            wait = max(
                min(posted.retry_after_seconds, WAIT_SECONDS_MAX),
                min(WAIT_SECONDS_FIRST * 2**number, WAIT_SECONDS_MAX),
            )
            left = deadline - asyncio.get_running_loop().time()
            if not _may_repeat(posted) or number == self._settings.retries or wait >= left:
                break
            await asyncio.sleep(wait)
        return _judged(posted)

    async def findings(self, call: base.HookCall) -> list[Finding]:
        again = "the receiver decides whether the server is started again: ask its owner"
        return [self._signed(), await self._reachable(), Finding(ok=True, text=again)]

    def _secret(self) -> bytes | None:
        file = self._settings.secret_file
        return None if file is None else signed_post.read_secret(file, "secret_file")

    async def _post(
        self, call: base.HookCall, body: bytes, secret: bytes | None, seconds: float
    ) -> Posted:
        tools, now = self._tools, self._tools.unix_time()
        headers = signed_post.headers(call.attempt_id, secret, body, now)
        headers["X-Vllm-Watch-Attempt"] = call.attempt_id
        return await signed_post.post(
            tools.session, self._settings.url, body, headers, seconds, now
        )

    def _signed(self) -> Finding:
        try:
            secret = self._secret()
        except WatchError as error:
            return Finding(ok=False, text=error.cause, remedy=error.remedy)
        if secret is not None:
            return Finding(ok=True, text="requests are signed")
        remedy = "set secret_file, and verify the signature there"
        return Finding(ok=True, text="requests are not signed", remedy=remedy)

    async def _reachable(self) -> Finding:
        why = await signed_post.reachable(self._settings.url)
        if why is not None:
            remedy = "check url, its name and its certificate"
            return Finding(ok=False, text=why, remedy=remedy)
        where = signed_post.origin(self._settings.url)
        text = f"{where} can be reached; nothing was sent, since that may restart the server"
        return Finding(ok=True, text=text)


def _may_repeat(posted: Posted) -> bool:
    return posted.end == signed_post.NOT_REACHED or posted.status in _TRY_AGAIN


def _judged(posted: Posted) -> base.HookResult:
    text, status = posted.text, posted.status
    if _may_repeat(posted) or posted.end == signed_post.UNTRUSTED:
        return base.HookResult(base.FAILED, text)
    if status is not None and 200 <= status < 300:  # noqa: PLR2004
        return base.HookResult(base.DONE, text)
    if status is None or not 300 <= status < 500:  # noqa: PLR2004
        return base.HookResult(base.UNCERTAIN, text)
    if status < 400:  # noqa: PLR2004
        text += ": redirects are not followed; set url to the final address"
    return base.HookResult(base.REFUSED, text)
