"""Tokens: right, wrong, replaced, unreadable, guessed; over real requests."""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio
from aiohttp import web

from vllm_watch.export.auth import CHANGES_MAX, FAILURES_MAX, Auth
from vllm_watch.settings.stages import Right, TokenSettings

ANA, BOT = "ana-0123456789abcdef", "bot-0123456789abcdef"


def token(
    folder: Path, name: str, text: str, may: tuple[Right, ...] = ("restart", "pause")
) -> TokenSettings:
    file = folder / name
    file.write_text(text + "\n")
    file.chmod(0o600)
    return TokenSettings(name=name, file=file, may=may)


class Caller:
    """Asks a real server that lets in whom `Auth` knows."""

    def __init__(self, url: str) -> None:
        self._url = url

    async def __call__(self, header: str | None, right: str = "restart") -> tuple[int, str]:
        headers = {} if header is None else {"Authorization": header}
        async with (
            aiohttp.ClientSession() as session,
            session.post(f"{self._url}/{right}", headers=headers) as answer,
        ):
            return answer.status, await answer.text()


@pytest_asyncio.fixture
async def ask(tmp_path: Path) -> AsyncIterator[Caller]:
    auth = Auth([token(tmp_path, "ana", ANA), token(tmp_path, "bot", BOT, ("pause",))])

    async def handler(request: web.Request) -> web.StreamResponse:
        actor = auth.actor(request, request.match_info["right"])
        return web.Response(text=actor) if isinstance(actor, str) else actor

    app = web.Application()
    app.router.add_post("/{right}", handler)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield Caller(f"http://127.0.0.1:{runner.addresses[0][1]}")
    await runner.cleanup()


CALLS = {
    "right": (f"Bearer {ANA}", "restart", 200),
    "in another case of the scheme": (f"bearer {ANA}", "restart", 200),
    "another's right": (f"Bearer {BOT}", "restart", 403),
    "its own right": (f"Bearer {BOT}", "pause", 200),
    "none": (None, "restart", 401),
    "empty": ("Bearer ", "restart", 401),
    "wrong": ("Bearer wrong-0123456789abcdef", "restart", 401),
    "cut": (f"Bearer {ANA[:-1]}", "restart", 401),
    "longer": (f"Bearer {ANA}x", "restart", 401),
    "another scheme": (f"Basic {ANA}", "restart", 401),
    "without a scheme": (ANA, "restart", 401),
    "not ASCII": ("Bearer pässwort-0123456789", "restart", 401),
    "huge": ("Bearer " + "x" * 7000, "restart", 401),
}


@pytest.mark.parametrize(("header", "right", "status"), CALLS.values(), ids=CALLS)
async def test_call(ask: Caller, header: str | None, right: str, status: int) -> None:
    """Only a whole token with the right lets in, and the answer never repeats what was sent."""
    got, text = await ask(header, right)
    assert got == status
    assert ANA not in text
    assert status != 200 or text in ("ana", "bot")


async def test_token_is_replaced_without_a_restart(ask: Caller, tmp_path: Path) -> None:
    """The new one counts from the moment its file does."""
    assert (await ask(f"Bearer {ANA}"))[0] == 200
    token(tmp_path, "ana", "new-0123456789abcdef0")
    assert (await ask(f"Bearer {ANA}"))[0] == 401
    assert (await ask("Bearer new-0123456789abcdef0"))[0] == 200


UNUSABLE = {
    "short": ("short", 0o600),
    "empty": ("", 0o600),
    "huge": ("x" * 5000, 0o600),
    "readable by others": ("long-enough-0123456789", 0o644),
}


@pytest.mark.parametrize(("text", "mode"), UNUSABLE.values(), ids=UNUSABLE)
async def test_unusable_token_lets_nobody_in(
    ask: Caller, tmp_path: Path, text: str, mode: int
) -> None:
    """What anybody could guess or read is no token; an empty file is not an empty token."""
    (tmp_path / "ana").write_text(text)
    (tmp_path / "ana").chmod(mode)
    assert (await ask(f"Bearer {text}"))[0] == 401


async def test_token_whose_file_is_gone_lets_nobody_in(ask: Caller, tmp_path: Path) -> None:
    """Removing the file is taking the token away; putting it back gives it again."""
    (tmp_path / "ana").rename(tmp_path / "kept")
    assert (await ask(f"Bearer {ANA}"))[0] == 401
    os.utime(tmp_path / "kept")
    (tmp_path / "kept").rename(tmp_path / "ana")
    assert (await ask(f"Bearer {ANA}"))[0] == 200


async def test_guessing_is_slowed_down_and_locks_nobody_out(ask: Caller) -> None:
    """After some wrong tokens the next one gets 429; the right one is taken all the while."""
    for _ in range(FAILURES_MAX):
        assert (await ask("Bearer wrong-0123456789abcdef"))[0] == 401
    assert (await ask("Bearer wrong-0123456789abcdef"))[0] == 429
    assert (await ask(f"Bearer {ANA}"))[0] == 200
    assert (await ask("Bearer wrong-0123456789abcdef"))[0] == 429


async def test_a_token_that_asks_too_often_is_told_to_wait(ask: Caller) -> None:
    """A script that loops is stopped at so many a minute; another token goes on."""
    for _ in range(CHANGES_MAX):
        assert (await ask(f"Bearer {ANA}"))[0] == 200
    status, text = await ask(f"Bearer {ANA}")
    assert (status, "ana has asked 60 times in 60 s" in text) == (429, True)
    assert (await ask(f"Bearer {BOT}", "pause"))[0] == 200


async def test_callers_without_any_token_are_not_counted(ask: Caller) -> None:
    """A page that asks whether it may is no attack."""
    for _ in range(FAILURES_MAX + 1):
        assert (await ask(None))[0] == 401
    assert (await ask(f"Bearer {ANA}"))[0] == 200
