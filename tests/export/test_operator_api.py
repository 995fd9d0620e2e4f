"""What changes something, over real requests: with which token, which body, and what is passed on."""

import asyncio
import io
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from tests.export.serving import serving
from tests.export.small_board import small_board
from vllm_watch.errors import WatchError
from vllm_watch.export.operator_api import ALERTS_BYTES_MAX
from vllm_watch.settings.stages import RIGHTS, TokenSettings
from vllm_watch.support.token_file import Caller

TOKEN = "ana-0123456789abcdef"
ROUTES = {
    "/api/v1/targets/chat-0/restart": "restart",
    "/api/v1/incidents/i1/approve": "approve",
    "/api/v1/incidents/i1/silence": "silence",
    "/api/v1/pause": "pause",
    "/api/v1/resume": "pause",
    "/api/v1/alertmanager": "alertmanager",
    "/api/v1/notifiers/oncall/test": "notify",
}
RELOAD = "reload"  # its route is there without tokens, too


class Noted:
    """Notes what is passed on; answers as whoever carries it out would."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Callable[..., Awaitable[tuple[int, Mapping[str, Any]]]]:
        async def noted(*said: Any) -> tuple[int, Mapping[str, Any]]:
            if "nowhere" in said:
                raise WatchError("There is no target 'nowhere'", "See /api/v1/status")
            self.calls.append((name, *said))
            return 202, {"text": "noted"}

        return noted


class Served:
    """A running server and what reached it."""

    def __init__(self, url: str, noted: Noted) -> None:
        self.url, self.noted = url, noted

    async def post(
        self, path: str, body: bytes | str = b"", token: str | None = TOKEN, **headers: str
    ) -> tuple[int, dict[str, Any]]:
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        async with (
            aiohttp.ClientSession() as session,
            session.post(
                self.url + path,
                data=io.BytesIO(body if isinstance(body, bytes) else body.encode()),
                headers=headers,
            ) as answer,
        ):
            return answer.status, await answer.json()


@asynccontextmanager
async def with_tokens(*tokens: TokenSettings) -> AsyncIterator[Served]:
    noted = Noted()
    async with serving(
        small_board(), operators=noted, tokens=tokens, test_notifier=noted.notify
    ) as server:
        yield Served(f"http://127.0.0.1:{server.port}", noted)


@pytest_asyncio.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    file = tmp_path / "token"
    file.write_text(TOKEN)
    file.chmod(0o600)
    async with with_tokens(TokenSettings(name="ana", file=file)) as served:
        yield served


def test_every_right_has_a_route() -> None:
    """No right is without use, and no route without a right."""
    assert {*ROUTES.values(), RELOAD} == set(RIGHTS)


@pytest.mark.parametrize("path", ROUTES)
async def test_nothing_without_the_right_token(served: Served, path: str) -> None:
    """No token, a wrong one, or another page's request: refused, and nothing is passed on."""
    body = b'{"reason": "x", "alerts": []}'
    assert (await served.post(path, body, token=None))[0] == 401
    assert (await served.post(path, body, token="wrong-0123456789abcdef"))[0] == 401
    assert (await served.post(path, body, Origin="http://evil.example"))[0] == 403
    assert (await served.post(path, body, Host="evil.example"))[0] == 421
    assert served.noted.calls == []


@pytest.mark.parametrize("path", ROUTES)
async def test_without_tokens_they_do_not_exist(path: str) -> None:
    """A watcher that was given no token changes nothing for anybody."""
    async with with_tokens() as served:
        assert (await served.post(path, b"{}"))[0] in (404, 405)


ANA = Caller(actor="ana", source="127.0.0.1")
PASSED: dict[str, tuple[str, dict[str, Any] | None, tuple[Any, ...]]] = {
    "restart": (
        "/api/v1/targets/chat-0/restart", {"reason": " it hangs "}, ("restart", ANA, "chat-0", "it hangs", None)),
    "restart against a freeze": (
        "/api/v1/targets/chat-0/restart", {"reason": "it hangs", "override_freeze": "users are down"},
        ("restart", ANA, "chat-0", "it hangs", "users are down")),
    "approve": ("/api/v1/incidents/i1/approve", None, ("approve", ANA, "i1")),
    "silence": (
        "/api/v1/incidents/i1/silence", {"reason": "known", "minutes": 5}, ("silence", ANA, "i1", "known", 5.0)),
    "silence for an hour": (
        "/api/v1/incidents/i1/silence", {"reason": "known"}, ("silence", ANA, "i1", "known", 60.0)),
    "pause": ("/api/v1/pause", {"reason": "migration"}, ("pause", ANA, "migration", None)),
    "resume": ("/api/v1/resume", {}, ("resume", ANA, "")),
    "alerts": ("/api/v1/alertmanager", {"alerts": [{}, {}]}, ("alerts", ANA, {"alerts": [{}, {}]})),
    "notify": ("/api/v1/notifiers/oncall/test", None, ("notify", "oncall")),
}  # fmt: skip


@pytest.mark.parametrize(("path", "body", "call"), PASSED.values(), ids=PASSED)
async def test_passed_on(
    served: Served, path: str, body: dict[str, Any] | None, call: tuple[Any, ...]
) -> None:
    sent = b"" if body is None else json.dumps(body)
    assert await served.post(path, sent) == (202, {"text": "noted"})
    assert served.noted.calls == [call]


WRONG: dict[str, tuple[str, bytes, str]] = {
    "no reason": ("/api/v1/pause", b"{}", "reason is missing"),
    "blank reason": ("/api/v1/pause", b'{"reason": "  "}', "reason is missing"),
    "reason is a number": ("/api/v1/pause", b'{"reason": 1}', "reason is not a text"),
    "long reason": ("/api/v1/pause", json.dumps({"reason": "x" * 501}).encode(), "reason is not a text"),
    "unknown key": ("/api/v1/pause", b'{"reason": "x", "until": 5}', "unknown key 'until'"),
    "no JSON": ("/api/v1/pause", b"reason=x", "not JSON"),
    "deep JSON": ("/api/v1/pause", b"[" * 4000, "not JSON"),
    "a list": ("/api/v1/pause", b"[]", "not a JSON object"),
    "minutes is true": ("/api/v1/pause", b'{"reason": "x", "minutes": true}', "minutes is not a number"),
    "minutes is zero": ("/api/v1/pause", b'{"reason": "x", "minutes": 0}', "minutes is not a number"),
    "minutes is NaN": ("/api/v1/pause", b'{"reason": "x", "minutes": NaN}', "minutes is not a number"),
    "no such target": (
        "/api/v1/targets/nowhere/restart", b'{"reason": "x"}', "There is no target 'nowhere'"),
    "alerts too large": ("/api/v1/alertmanager", b" " * (ALERTS_BYTES_MAX + 1), "larger than 1 MiB"),
}  # fmt: skip


@pytest.mark.parametrize(("path", "body", "words"), WRONG.values(), ids=WRONG)
async def test_wrong_body_is_refused(served: Served, path: str, body: bytes, words: str) -> None:
    """What cannot be understood is said, with what to do, and nothing is passed on."""
    status, said = await served.post(path, body)
    assert status == 400
    assert words in said["error"]
    assert said["remedy"]
    assert served.noted.calls == []


async def test_large_bodies_are_for_alertmanager_alone(served: Served) -> None:
    """And only behind a token: without one not even the body is read."""
    group = json.dumps({"alerts": [{"labels": {"a": "x" * 100}}] * 2000}).encode()
    assert (await served.post("/api/v1/alertmanager", group))[0] == 202
    assert (await served.post("/api/v1/pause", group))[0] == 413


async def test_getting_changes_nothing(served: Served) -> None:
    """A link, an image or a crawler can restart nothing."""
    async with aiohttp.ClientSession() as session:
        for path in ROUTES:
            headers = {"Authorization": f"Bearer {TOKEN}"}
            async with session.get(served.url + path, headers=headers) as answer:
                assert answer.status == 405
    await asyncio.sleep(0)
    assert served.noted.calls == []
