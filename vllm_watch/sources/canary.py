"""The canary: a one-token completion that shows whether an engine is hung or idle.

While an engine core hangs, `/health` and `/metrics` still answer with 200, and may report no
running request. Sleeping and paused engines get no canary, because it might wake or break them.
`X-data-parallel-rank` selects one engine (vLLM 0.11 and later). vLLM aborts a request when its
client hangs up, so canaries do not pile up.
"""

import asyncio
import json
import secrets
from dataclasses import replace
from typing import Any, NamedTuple

from vllm_watch.errors import WatchError
from vllm_watch.samples.observation import Call, CanaryCall
from vllm_watch.samples.target import Target
from vllm_watch.sources import http
from vllm_watch.sources.http import Session
from vllm_watch.sources.vllm import ScrapeLimits
from vllm_watch.sources.what_answered import authorization
from vllm_watch.support import json_text
from vllm_watch.support.redaction import excerpt

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
PROMPT = "Hello"
"""The prompt of every canary."""

REQUEST_ID_PREFIX = "vllm-watch-canary-"
_BODY_BYTES_MAX = 1 << 20
_CAUSE_CHARS_MAX = 200
_SWITCHES = ("/is_sleeping", "/is_paused")
_BUSY = (429, 503)
_GATEWAY_TIMEOUT = 504
_CALLERS_FAULT = range(400, 500)
_NO_SUCH_ROUTE = (404, 405, 501)

_OUTCOME_OF_CALL = {
    "read_timeout": "unanswered", "disconnected": "failed", "refused": "unreached",
    "connect_timeout": "unreached", "dns": "unreached", "tls": "unreached", "watcher": "unreached",
}  # fmt: skip

_KEY_REMEDY = "name a file with the server's key in scrape.api_key_file"
_MODEL_REMEDY = "set canary.model to a name that /v1/models lists"
_OTHER_REMEDY = "set canary.enabled to false for this target if it takes no completions"


class Asked(NamedTuple):
    """The result of one canary."""

    canary: CanaryCall
    call: Call
    problem: WatchError | None = None  # if the server refused the canary


class CanarySource:
    """Sends canaries to one server; calls must not overlap."""

    def __init__(
        self, target: Target, model: str, seconds: float, scrape: ScrapeLimits, session: Session
    ) -> None:
        """`model` may be "", and `seconds` limits each call."""
        self._target = target
        self._model = model
        self._api_key_file = scrape.api_key_file
        self._session = session
        connect = min(scrape.connect_timeout_seconds, seconds)
        self._limits = http.Limits(connect, seconds, _BODY_BYTES_MAX, scrape.tls_config)
        self._small = replace(self._limits, timeout_seconds=min(scrape.timeout_seconds, seconds))
        self._route = COMPLETIONS

    async def ask(self, model: str | None, engine: str | None) -> Asked | None:
        """Request one token; return None if the server sleeps or is paused. `engine` is None if the server has only one engine."""
        if await self._at_rest():
            return None
        try:
            headers = await self._headers(engine)
        except OSError as error:
            cause = f"the API key file cannot be read: {error.strerror}"
            problem = WatchError(cause, "make it readable for vllm-watch")
            return _asked("refused", Call(outcome="http", error=cause), engine, problem=problem)
        asked = await self._post(self._route, model, engine, headers)
        if asked is None and self._route == COMPLETIONS:
            self._route = CHAT
            asked = await self._post(CHAT, model, engine, headers)
        if asked is None:
            self._route = COMPLETIONS
            cause = "the server offers no completions, so no canary is possible"
            call = Call(outcome="http", status=404, error=cause)
            return _asked("refused", call, engine, problem=WatchError(cause, _OTHER_REMEDY))
        return asked

    async def _at_rest(self) -> bool:
        answers = await asyncio.gather(
            *(
                http.get(self._session, self._target.url + path, self._small, {})
                for path in _SWITCHES
            )
        )
        return any(
            value is True
            for answer in answers
            if answer.call.outcome == "ok"
            for value in _object(answer.body).values()
        )

    async def _headers(self, engine: str | None) -> dict[str, str]:
        headers = {
            "Content-Type": "application/json",
            "Accept": "application/json",
            "Accept-Encoding": "identity",
            "X-Request-Id": REQUEST_ID_PREFIX + secrets.token_hex(4),
        }
        if engine is not None:
            headers["X-data-parallel-rank"] = engine
        return headers | await authorization(self._api_key_file)

    async def _post(
        self, route: str, model: str | None, engine: str | None, headers: dict[str, str]
    ) -> Asked | None:
        body = json.dumps(_request(route, self._model or model)).encode()
        url = self._target.url + route
        answer = await http.post(self._session, url, self._limits, headers, body)
        call, document = answer.call, _object(answer.body)
        if call.outcome == "ok":
            if document.get("choices"):
                return _asked("ok", call, engine)
            text = "the answer is not a completion"
            problem = WatchError(f"{url}: {text}", _OTHER_REMEDY)
            return _asked("refused", call, engine, text, problem)
        if call.outcome == "http":
            return _not_taken(url, call, document, engine)
        outcome = _OUTCOME_OF_CALL.get(call.outcome, "failed")
        return _asked(outcome, call, engine)


def _request(route: str, model: str | None) -> dict[str, Any]:
    """`ignore_eos` makes vLLM send a token even if the text ends at once."""
    body: dict[str, Any] = {"max_tokens": 1, "temperature": 0, "ignore_eos": True, "stream": False}
    if model is not None:
        body["model"] = model
    if route == CHAT:
        return body | {"messages": [{"role": "user", "content": PROMPT}]}
    return body | {"prompt": PROMPT}


def _not_taken(url: str, call: Call, document: dict[str, Any], engine: str | None) -> Asked | None:
    status, why = call.status or 0, _why(document)
    if status in _NO_SUCH_ROUTE and "model" not in why.lower():
        return None
    if "does not support" in why:  # a pooling model
        return None
    text = f"HTTP {status}: {why}" if why else f"HTTP {status}"
    call = Call(outcome="http", status=status, error=text, latency_s=call.latency_s)
    if status in _BUSY:
        return _asked("busy", call, engine)
    if status == _GATEWAY_TIMEOUT:
        return _asked("unanswered", call, engine)
    if status not in _CALLERS_FAULT:
        return _asked("failed", call, engine)
    remedy = {401: _KEY_REMEDY, 403: _KEY_REMEDY, 404: _MODEL_REMEDY}.get(status, _OTHER_REMEDY)
    problem = WatchError(f"{url} refuses the canary: {text}", remedy)
    return _asked("refused", call, engine, problem=problem)


def _why(document: dict[str, Any]) -> str:
    inner = document.get("error")
    why = inner.get("message") if isinstance(inner, dict) else inner or document.get("message")
    return excerpt(str(why or ""), _CAUSE_CHARS_MAX)  # some servers quote the API key


def _object(body: bytes) -> dict[str, Any]:
    try:
        document = json_text.read(body)
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


def _asked(
    outcome: str,
    call: Call,
    engine: str | None,
    error: str | None = None,
    problem: WatchError | None = None,
) -> Asked:
    """Without `error`, the canary has the call's error."""
    canary = CanaryCall(
        ok=outcome == "ok", latency_s=call.latency_s, error=error or call.error,
        outcome=outcome, engine=engine,
    )  # fmt: skip
    return Asked(canary, call, problem)
