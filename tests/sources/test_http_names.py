"""Which addresses a host has, and how a request to it is written."""

import asyncio
import base64
import socket

import pytest

from vllm_watch import __version__
from vllm_watch.sources import http, http_caches
from vllm_watch.sources.http import Session
from vllm_watch.sources.http_caches import Names
from vllm_watch.sources.http_messages import URL_CHARS_MAX, Origin, place, request

V4, V6 = socket.AF_INET, socket.AF_INET6


def info(family, to):
    """As getaddrinfo has it."""
    return family, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", to


class Resolver:
    """Answers with what it has, once it may; counts how often it was asked."""

    def __init__(self, *addresses, error=None):
        self.addresses, self.error, self.asked = addresses, error, 0
        self.may = asyncio.Event()
        self.may.set()

    async def __call__(self, host, port):
        self.asked += 1
        await self.may.wait()
        if self.error is not None:
            raise self.error
        return [info(V6 if ":" in each else V4, (each, port)) for each in self.addresses]


async def addresses(names, host="engine"):
    return [to[0] for *_, to in await names.addresses(host, 8000)]


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "10.1.2.3", "2001:db8::1"])
async def test_an_address_in_figures_is_asked_of_nobody(host):
    """It is what it is, also while no name server answers."""
    resolver = Resolver()
    assert await addresses(Names(resolver), host) == [host]
    assert resolver.asked == 0


async def test_a_link_local_address_keeps_its_interface():
    """Without it the address is of no use: every interface has such addresses."""
    index, name = socket.if_nameindex()[0]
    ((family, *_, to),) = await Names(Resolver()).addresses(f"fe80::1%{name}", 8000)
    assert (family, to[3]) == (V6, index)


async def test_a_name_is_remembered_for_a_while(monkeypatch):
    """And asked for again after that: a pod that is replaced has another address."""
    resolver = Resolver("10.0.0.1")
    names = Names(resolver)
    assert await addresses(names) == await addresses(names) == ["10.0.0.1"]
    assert resolver.asked == 1
    monkeypatch.setattr(http_caches, "KEPT_SECONDS", -1.0)
    resolver.addresses = ["10.0.0.2"]
    later = Names(resolver)
    assert (await addresses(later), await addresses(later)) == (["10.0.0.2"], ["10.0.0.2"])
    assert resolver.asked == 3


async def test_questions_at_a_time_are_one_question():
    """A hundred targets behind one name begin together; who gives up takes nothing from the others."""
    resolver = Resolver("10.0.0.1")
    resolver.may.clear()
    names = Names(resolver)
    asking = [asyncio.create_task(addresses(names)) for _ in range(5)]
    await asyncio.sleep(0)
    asking[0].cancel()
    await asyncio.sleep(0)
    resolver.may.set()
    given_up, *others = await asyncio.gather(*asking, return_exceptions=True)
    assert isinstance(given_up, asyncio.CancelledError)
    assert others == [["10.0.0.1"]] * 4
    assert resolver.asked == 1


async def test_a_failure_is_not_remembered():
    """The name server may be back a second later."""
    resolver = Resolver("10.0.0.1", error=socket.gaierror(socket.EAI_AGAIN, "try again"))
    names = Names(resolver)
    for _ in range(2):
        with pytest.raises(socket.gaierror):
            await addresses(names)
    resolver.error = None
    assert await addresses(names) == ["10.0.0.1"]


@pytest.mark.parametrize("error", [UnicodeError("label too long"), None])
async def test_what_cannot_be_found_is_a_name_that_does_not_resolve(error):
    """A label that is too long, and a name without any address."""
    limits = http.Limits(5.0, 10.0, 100)
    async with Session(Names(Resolver(error=error))) as session:
        answer = await http.get(session, "http://engine:8000/metrics", limits, {})
    assert answer.call.outcome == "dns"


async def test_who_waits_for_a_name_when_the_session_closes_is_told():
    """Not cancelled: nobody cancelled that call."""
    resolver = Resolver("10.0.0.1")
    resolver.may.clear()
    session = Session(Names(resolver))
    call = asyncio.create_task(
        http.get(session, "http://engine/", http.Limits(20.0, 30.0, 100), {})
    )
    while not resolver.asked:
        await asyncio.sleep(0)
    await session.close()
    assert (await call).call.outcome == "dns"


PLACES = {
    "http://engine:8000/metrics": (Origin("http", "engine", 8000), "/metrics", "engine:8000"),
    "http://engine": (Origin("http", "engine", 80), "/", "engine"),
    "https://Engine.Example:443/a/": (Origin("https", "engine.example", 443), "/a/", "engine.example"),
    "https://engine:80/": (Origin("https", "engine", 80), "/", "engine:80"),
    "http://[2001:DB8::1]:8000/": (Origin("http", "2001:db8::1", 8000), "/", "[2001:db8::1]:8000"),
    "http://[fe80::1%25eth0]/": (Origin("http", "fe80::1%eth0", 80), "/", "[fe80::1]"),
    "http://mürbe.example/": (Origin("http", "xn--mrbe-0ra.example", 80), "/", "xn--mrbe-0ra.example"),
    "http://engine/a b?c=d e&f=%20#g": (Origin("http", "engine", 80), "/a%20b?c=d%20e&f=%20", "engine"),
}  # fmt: skip


@pytest.mark.parametrize(("url", "expected"), PLACES.items(), ids=PLACES)
def test_where_a_url_leads(url, expected):
    """To whom the connection is made, what is asked there, and what Host says."""
    assert place(url)[:3] == expected


@pytest.mark.parametrize(
    "url",
    ["", "metrics", "ftp://engine/", "http://", "http:///metrics", "http://engine:99999/", "http://[::1", "http://a b/",
     "http://engine/" + "x" * URL_CHARS_MAX],
)  # fmt: skip
async def test_a_url_that_leads_nowhere_is_no_answer(url):
    """Said as an outcome like any other; nothing is raised."""
    async with Session() as session:
        call = (await http.get(session, url, http.Limits(1.0, 2.0, 10), {})).call
    assert call.outcome == "garbled"
    assert "invalid request" in call.error


def test_a_request_is_written():
    """Whole, as it goes over the wire."""
    said = request("GET", place("http://engine:8000/metrics"), {"Accept-Encoding": "identity"}, None)  # fmt: skip
    assert said.decode() == (
        "GET /metrics HTTP/1.1\r\nHost: engine:8000\r\nAccept: */*\r\nAccept-Encoding: identity\r\n"
        f"User-Agent: vllm-watch/{__version__}\r\n\r\n"
    )


def test_user_and_password_of_a_url_are_basic_authentication():
    """Unless the request says otherwise who it is from."""
    to = place("http://me:p%40ss@engine/")
    written = b"Authorization: Basic " + base64.b64encode(b"me:p@ss") + b"\r\n"
    assert to.host == "engine"
    assert written in request("GET", to, {}, None)
    other = request("GET", to, {"Authorization": "Bearer key"}, None)
    assert other.count(b"Authorization") == 1
    assert b"Bearer key" in other


BREAKING = {
    "a line break in a value": {"Authorization": "Bearer a\r\nX-Evil: 1"},
    "a bare line feed": {"Authorization": "Bearer a\nb"},
    "a line that would be another header": {"A": "b\r\nC: d"},
    "NUL": {"A": "b\0"},
    "a name with a colon": {"A: b\r\nC": "d"},
    "no name": {"": "x"},
    "a space in a name": {"A B": "x"},
}


@pytest.mark.parametrize("headers", BREAKING.values(), ids=BREAKING)
def test_a_header_that_would_break_a_request_is_not_sent(headers):
    """A key file with two lines would otherwise write the next header, or the next request."""
    with pytest.raises(ValueError, match="a header holds"):
        request("GET", place("http://engine/"), headers, None)
