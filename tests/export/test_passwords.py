"""Basic auth over real requests: who is let in, how long a guess takes, and what a scrape costs."""

import asyncio
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import bcrypt
import pytest
import structlog

from tests.export.serving import serving
from tests.export.small_board import small_board
from tests.export.test_auth import ANA as TOKEN
from tests.export.test_auth import token
from tests.export.test_server import ask as request
from vllm_watch.export import passwords, web_config
from vllm_watch.export.passwords import FAILURES_MAX, Passwords, TooManyError
from vllm_watch.export.server import Server

PASSWORD = "pässwort of ana"


def hashed(password: str, cost: int = 4) -> str:
    return bcrypt.hashpw(password.encode(), bcrypt.gensalt(cost)).decode()


USERS = {"ana": hashed(PASSWORD), "bo": hashed("x" * 72), "cy": hashed("y").replace("$2b$", "$2y$")}


def web_file(folder: Path, users: dict[str, str]) -> Path:
    file = folder / "web.yaml"
    file.write_text("basic_auth_users:\n" + "".join(f"  {n}: {h}\n" for n, h in users.items()))
    return file


@asynccontextmanager
async def guarded(folder: Path, users: dict[str, str] = USERS) -> AsyncIterator[Server]:
    async def reload(actor: str, source: str) -> None:
        return None

    tokens = [token(folder, "token", TOKEN, ("reload",))]
    async with serving(
        small_board(), reload=reload, web_config=web_file(folder, users), tokens=tokens
    ) as server:
        yield server


async def ask(
    server: Server, header: str | None, path: str = "/metrics", method: str = "GET"
) -> tuple[int, str]:
    sent = {} if header is None else {"Authorization": header}
    url = f"http://127.0.0.1:{server.port}{path}"
    status, _, headers = await request(method, url, headers=sent)
    return status, headers.get("WWW-Authenticate", headers.get("Retry-After", ""))


def basic(user: str, password: str) -> str:
    return "Basic " + b64encode(f"{user}:{password}".encode()).decode()


CALLS = {
    "right": (basic("ana", PASSWORD), 200),
    "72 bytes, which is all that bcrypt looks at": (basic("bo", "x" * 72), 200),
    "made by htpasswd": (basic("cy", "y"), 200),
    "a wrong password": (basic("ana", "wrong"), 401),
    "nobody's name": (basic("eve", PASSWORD), 401),
    "an empty password": (basic("ana", ""), 401),
    "the hash for the password": (basic("ana", USERS["ana"]), 401),
    "with a NUL": (basic("ana", PASSWORD + "\0"), 401),
    "none": (None, 401),
    "no base64": ("Basic ???", 401),
    "right, among what is no base64": (basic("ana", PASSWORD).replace("Basic ", "Basic ?"), 401),
    "not UTF-8": ("Basic //86eA==", 401),
    "huge": ("Basic " + "A" * 3000, 401),
    "right, in another scheme": (basic("ana", PASSWORD).replace("Basic ", "Bearer "), 401),
    "a token, where passwords are asked for": (f"Bearer {TOKEN}", 401),
}


@pytest.mark.parametrize(("header", "status"), CALLS.values(), ids=CALLS)
async def test_call(tmp_path: Path, header: str | None, status: int) -> None:
    """Only a user's whole password lets in; everybody else is told how to ask."""
    async with guarded(tmp_path) as server:
        got, challenge = await ask(server, header)
        assert got == status
        assert challenge.startswith("Basic ") == (status == 401)


async def test_every_route_asks_but_the_one_of_probes(tmp_path: Path) -> None:
    """Taken from the router, so that a new one cannot be forgotten."""
    async with guarded(tmp_path) as server:
        for route in server.routes:
            path = route.path.replace("{id}", "i").replace("{name}", "app.js")
            status, _ = await ask(server, None, path, route.method)
            assert (path, status) == (path, 200 if path == "/-/healthy" else 401)


async def test_what_changes_something_takes_the_token_in_place_of_the_password(
    tmp_path: Path,
) -> None:
    """A request carries one Authorization; a wrong token is no password either."""
    async with guarded(tmp_path) as server:
        assert (await ask(server, f"Bearer {TOKEN}", "/-/reload", "POST"))[0] == 200
        assert (await ask(server, "Bearer wrong-0123456789abcdef", "/-/reload", "POST"))[0] == 401
        assert (await ask(server, basic("ana", PASSWORD), "/-/reload", "POST"))[0] == 401


def checks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The hashes that passwords are really checked against from now on."""
    checked: list[str] = []
    original = passwords._check

    def check(password: bytes, known: str) -> bool:
        checked.append(known)
        return original(password, known)

    monkeypatch.setattr(passwords, "_check", check)
    return checked


async def test_a_scrape_every_few_seconds_costs_one_hash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was verified is remembered; what was wrong is not."""
    checked = checks(monkeypatch)
    async with guarded(tmp_path) as server:
        for _ in range(5):
            assert (await ask(server, basic("ana", PASSWORD)))[0] == 200
        assert len(checked) == 1
        for _ in range(2):
            assert (await ask(server, basic("ana", "wrong")))[0] == 401
        assert len(checked) == 3


async def test_a_password_that_was_changed_is_forgotten_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web_config, "LOOK_SECONDS", 0.02)
    async with guarded(tmp_path) as server:
        assert (await ask(server, basic("ana", PASSWORD)))[0] == 200
        web_file(tmp_path, {"ana": hashed("another")})
        async with asyncio.timeout(10):
            while (await ask(server, basic("ana", "another")))[0] != 200:
                await asyncio.sleep(0.05)
        assert (await ask(server, basic("ana", PASSWORD)))[0] == 401


async def test_guessing_is_slowed_down_and_locks_nobody_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From one address: the guesser waits for each try, and the right password among them is taken."""
    monkeypatch.setattr(passwords, "PAUSE_SECONDS", 0.02)
    checked = checks(monkeypatch)
    async with guarded(tmp_path) as server:
        assert (await ask(server, basic("ana", PASSWORD)))[0] == 200
        for _ in range(FAILURES_MAX):
            assert (await ask(server, basic("ana", "wrong")))[0] == 401
        before = len(checked)
        guesses = [asyncio.create_task(ask(server, basic("ana", "wrong"))) for _ in range(30)]
        async with asyncio.timeout(30):
            while len(checked) == before:
                await asyncio.sleep(0.01)
        assert (await ask(server, basic("ana", PASSWORD)))[
            0
        ] == 200  # it is known: no turn to wait for
        assert (await ask(server, basic("cy", "y")))[0] == 200  # never seen before
        assert set(await asyncio.gather(*guesses)) == {(429, "1")}


async def test_who_guesses_slows_down_nobody_at_another_address(tmp_path: Path) -> None:
    async with guarded(tmp_path) as server:
        url = f"http://127.0.0.1:{server.port}/metrics"

        async def guess(address: str) -> int:
            connector = aiohttp.TCPConnector(local_addr=(address, 0))
            headers = {"Authorization": basic("ana", "wrong")}
            async with (
                aiohttp.ClientSession(connector=connector) as session,
                session.get(url, headers=headers) as answer,
            ):
                return answer.status

        assert {await guess("127.0.0.2") for _ in range(FAILURES_MAX)} == {401}
        assert await guess("127.0.0.2") == 429
        assert await guess("127.0.0.3") == 401


async def test_without_tokens_a_bearer_stands_for_no_password(tmp_path: Path) -> None:
    """Neither does it where there are tokens, and this is none of them."""

    async def reload(actor: str, source: str) -> None:
        raise AssertionError(f"{actor} reloaded")

    file = web_file(tmp_path, USERS)
    async with serving(small_board(), reload=reload, web_config=file) as server:
        assert (await ask(server, "Bearer x", "/-/reload", "POST"))[0] == 401


COSTS = {"one cost": ((6,), 6), "mixed costs": ((4, 6, 5), 6), "no user": ((), 10)}


@pytest.mark.parametrize(("costs", "cost"), COSTS.values(), ids=COSTS)
async def test_a_name_that_nobody_has_takes_as_long_as_a_wrong_password(
    monkeypatch: pytest.MonkeyPatch, costs: tuple[int, ...], cost: int
) -> None:
    """Time tells nothing of names: a hash is computed for nobody, too, as dear as the dearest user's."""
    users = {f"user{n}": hashed(PASSWORD, n) for n in costs}
    checked = checks(monkeypatch)
    assert await Passwords().user(users, basic("eve", "wrong"), "a") is None
    assert [(known[:7], len(known)) for known in checked] == [(f"$2b${cost:02}$", 60)]


async def test_the_loop_goes_on_while_hashes_are_computed(tmp_path: Path) -> None:
    """A hash of a tenth of a second does not hold up a scrape that needs none."""
    async with guarded(tmp_path, {"ana": hashed(PASSWORD, 4), "slow": hashed("s", 11)}) as server:
        assert (await ask(server, basic("ana", PASSWORD)))[0] == 200
        guesses = [asyncio.create_task(ask(server, basic("slow", "wrong"))) for _ in range(8)]
        await asyncio.sleep(0.05)
        assert (await ask(server, basic("ana", PASSWORD)))[0] == 200
        assert not all(guess.done() for guess in guesses)
        assert {status for status, _ in await asyncio.gather(*guesses)} == {401}


async def test_a_password_is_what_bcrypt_looks_at() -> None:
    """Its first 72 bytes; a hash that is none lets nobody in."""
    checks = Passwords()
    users = USERS | {"eve": "no hash"}
    for password, user in (("x" * 73, "bo"), ("x" * 200, "bo"), ("x" * 71, None)):
        assert await checks.user(users, basic("bo", password), "a") == user
    assert await checks.user(users, basic("eve", "no hash"), "a") is None


async def test_a_name_that_nobody_has_is_never_let_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever its password is: the hash that it is checked against is nobody's."""
    monkeypatch.setattr(passwords, "_check", lambda password, known: True)
    assert await Passwords().user(USERS, basic("eve", "x"), "a") is None
    assert await Passwords().user(USERS, basic("ana", "x"), "a") == "ana"


class Guesser:
    """Guesses wrong at a clock that it sets, and notes each pause that it was made to take."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 1000.0
        self.pauses: list[float] = []
        self._passwords = Passwords()

        async def sleep(seconds: float) -> None:
            self.pauses.append(seconds)

        monkeypatch.setattr(passwords.asyncio, "sleep", sleep)
        monkeypatch.setattr(passwords, "time", self)
        monkeypatch.setattr(passwords, "_check", lambda password, known: False)

    def monotonic(self) -> float:
        return self.now_s

    async def waits(self, caller: str) -> bool:
        """Guess once; was it told to wait?"""
        try:
            assert await self._passwords.user(USERS, basic("ana", "wrong"), caller) is None
        except TooManyError:
            return True
        return False


async def test_who_was_wrong_ten_times_in_a_minute_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fifth of a second before each further try, until the minute is over."""
    guesser = Guesser(monkeypatch)
    assert [await guesser.waits("a") for _ in range(11)] == [False] * 10 + [True]
    assert guesser.pauses == [0.2]
    assert not await guesser.waits("b")
    guesser.now_s += 59.9
    assert await guesser.waits("a")
    guesser.now_s += 60.0
    assert not await guesser.waits("a")
    assert guesser.pauses == [0.2, 0.2]


async def test_who_guesses_is_logged_once_and_remembered_among_so_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each guess until it has to wait, then once that it does; of the callers the last ones are known."""
    monkeypatch.setattr(passwords, "PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(passwords, "CALLERS_MAX", 2)
    checks = Passwords()
    with structlog.testing.capture_logs() as logs:
        for _ in range(FAILURES_MAX):
            assert await checks.user(USERS, basic("ana", "wrong"), "one") is None
        for _ in range(3):
            with pytest.raises(TooManyError):
                await checks.user(USERS, basic("ana", "wrong"), "one")
    said = [each["event"] for each in logs]
    assert said == ["wrong_password"] * (FAILURES_MAX - 1) + ["wrong_passwords"]
    for caller in ("two", "three"):
        await checks.user(USERS, basic("ana", "wrong"), caller)
    assert list(checks._failures) == ["two", "three"]
    for caller in ("two", "four"):
        await checks.user(USERS, basic("ana", "wrong"), caller)
    assert list(checks._failures) == ["two", "four"]


async def test_a_hundred_passwords_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that were used last."""
    checked = checks(monkeypatch)
    users = {f"u{n}": USERS["cy"] for n in range(101)}
    known = Passwords()

    async def hashes(*numbers: int) -> int:
        before = len(checked)
        for n in numbers:
            assert await known.user(users, basic(f"u{n}", "y"), "a") == f"u{n}"
        return len(checked) - before

    assert await hashes(*range(100)) == 100
    assert await hashes(*range(1, 100), 0) == 0
    assert await hashes(100, 0) == 1
    assert await hashes(1) == 1
