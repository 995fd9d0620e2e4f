"""The canary: a completion of one token, asked of an engine that looks idle, and how it ended.

A wedged engine core answers `/health` and `/metrics` with 200 and may read "0 running"; only a request
tells it from an idle one. What is sent is always the same harmless word, and never to an engine that
sleeps or is paused: a request must not wake or break what somebody has put to rest.

Source: vLLM's OpenAI API; `X-data-parallel-rank` addresses one engine (vLLM 0.11 and later; earlier ones
ignore it and choose). A client that hangs up aborts its request, so canaries do not pile up.
"""

import asyncio
import json
import secrets
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

from vllm_watch.errors import WatchError
from vllm_watch.samples.observation import Call, CanaryCall
from vllm_watch.samples.target import Target
from vllm_watch.sources import http
from vllm_watch.sources.http_session import Session
from vllm_watch.sources.vllm import ScrapeLimits
from vllm_watch.sources.what_answered import read_key
from vllm_watch.support import json_text
from vllm_watch.support.redaction import excerpt

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
PROMPT = "Hello"
"""All that a canary ever says: nothing of your users, short enough to cost one step."""

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
    """What one canary brought."""

    canary: CanaryCall
    call: Call
    problem: WatchError | None = None  # what an operator can mend, where the server refused it


class CanaryLimits(Protocol):
    """What a source reads of the settings `canary`."""

    @property
    def model(self) -> str: ...
    @property
    def timeout_seconds(self) -> float: ...


class CanarySource:
    """Asks one server for one token. Calls must not overlap; the session belongs to the caller."""

    def __init__(
        self,
        target: Target,
        settings: CanaryLimits,
        scrape: ScrapeLimits,
        session: Session,
    ) -> None:
        self._target = target
        self._settings = settings
        self._api_key_file = scrape.api_key_file
        self._session = session
        seconds = settings.timeout_seconds
        connect = min(scrape.connect_timeout_seconds, seconds)
        self._limits = http.Limits(connect, seconds, _BODY_BYTES_MAX, scrape.tls_config)
        self._small = replace(self._limits, timeout_seconds=min(scrape.timeout_seconds, seconds))
        self._route = COMPLETIONS

    async def ask(self, model: str | None, engine: str | None) -> Asked | None:
        """Ask for a token; None where the server has been put to sleep or paused meanwhile.

        `model` is the name that the server goes by, None where that is not known; `engine` the
        data-parallel engine that shall answer, None where there is only one.
        """
        if await self._at_rest():
            return None
        try:
            headers = await self._headers(engine)
        except OSError as error:
            said = f"the API key file cannot be read: {error.strerror}"
            problem = WatchError(said, "make it readable for vllm-watch")
            return Asked(
                _canary("refused", 0.0, said, engine), Call(outcome="http", error=said), problem
            )
        asked = await self._post(self._route, model, engine, headers)
        if asked is None and self._route == COMPLETIONS:
            self._route = CHAT
            asked = await self._post(CHAT, model, engine, headers)
        if asked is None:
            self._route = COMPLETIONS  # by the next time it may be another server
            said = "the server offers no completions, so no canary is possible"
            call = Call(outcome="http", status=404, error=said)
            return Asked(
                _canary("refused", 0.0, said, engine), call, WatchError(said, _OTHER_REMEDY)
            )
        return asked

    async def _at_rest(self) -> bool:
        """Is it asleep or paused at this moment? Servers without the switches cannot be."""
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
        if self._api_key_file is not None:
            key = await asyncio.to_thread(read_key, self._api_key_file)
            headers["Authorization"] = f"Bearer {key}"
        return headers

    async def _post(
        self, route: str, model: str | None, engine: str | None, headers: dict[str, str]
    ) -> Asked | None:
        """None: there is no such route."""
        body = json.dumps(_request(route, self._settings.model or model)).encode()
        url = self._target.url + route
        answer = await http.post(self._session, url, self._limits, headers, body)
        call, said = answer.call, _object(answer.body)
        if call.outcome == "ok":
            if said.get("choices"):
                return Asked(_canary("ok", call.latency_s, None, engine), call)
            text = "the answer is not a completion"
            problem = WatchError(f"{url}: {text}", _OTHER_REMEDY)
            return Asked(_canary("refused", call.latency_s, text, engine), call, problem)
        if call.outcome == "http":
            return _not_taken(url, call, said, engine)
        outcome = _OUTCOME_OF_CALL.get(call.outcome, "failed")
        return Asked(_canary(outcome, call.latency_s, call.error, engine), call)


def _request(route: str, model: str | None) -> dict[str, Any]:
    """One token, whatever it is: `ignore_eos`, since an end at once would be no token."""
    said: dict[str, Any] = {"max_tokens": 1, "temperature": 0, "ignore_eos": True, "stream": False}
    if model is not None:
        said["model"] = model
    if route == CHAT:
        return said | {"messages": [{"role": "user", "content": PROMPT}]}
    return said | {"prompt": PROMPT}


def _not_taken(url: str, call: Call, said: dict[str, Any], engine: str | None) -> Asked | None:
    """Tell apart why a server answered with an error; None where it has no such route."""
    status, why = call.status or 0, _why(said)
    if status in _NO_SUCH_ROUTE and "model" not in why.lower():
        return None
    if "does not support" in why:  # a pooling model, before vLLM left the route out for it
        return None
    text = f"HTTP {status}: {why}" if why else f"HTTP {status}"
    call = Call(outcome="http", status=status, error=text, latency_s=call.latency_s)
    if status in _BUSY:
        return Asked(_canary("busy", call.latency_s, text, engine), call)
    if status == _GATEWAY_TIMEOUT:  # a proxy has waited in our place
        return Asked(_canary("unanswered", call.latency_s, text, engine), call)
    if status not in _CALLERS_FAULT:
        return Asked(_canary("failed", call.latency_s, text, engine), call)
    remedy = {401: _KEY_REMEDY, 403: _KEY_REMEDY, 404: _MODEL_REMEDY}.get(status, _OTHER_REMEDY)
    problem = WatchError(f"{url} refuses the canary: {text}", remedy)
    return Asked(_canary("refused", call.latency_s, text, engine), call, problem)


def _why(said: dict[str, Any]) -> str:
    """The server's own words: vLLM nests them, older and other servers do not."""
    inner = said.get("error")
    why = inner.get("message") if isinstance(inner, dict) else inner or said.get("message")
    return excerpt(str(why or ""), _CAUSE_CHARS_MAX)  # some repeat the key that they refuse


def _object(body: bytes) -> dict[str, Any]:
    try:
        said = json_text.read(body)
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}


def _canary(outcome: str, latency_s: float, error: str | None, engine: str | None) -> CanaryCall:
    return CanaryCall(
        ok=outcome == "ok", latency_s=latency_s, error=error, outcome=outcome, engine=engine
    )
