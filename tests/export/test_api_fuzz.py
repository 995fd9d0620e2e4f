"""Whatever is sent to any operation of docs/openapi.json is answered in time, without a 500, and as the document says.

Requests are made from the document: parameters and bodies that fit their schemas, and ones that do not.
"""

import asyncio
import http.client
import threading
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import schemathesis
from schemathesis.specs.openapi.checks import positive_data_acceptance

from tests.examples import examples
from tests.export.test_openapi import DOCUMENT
from tests.restart.station import TOKEN, station
from vllm_watch.export import auth

ANSWER_SECONDS_MAX = 10.0
STREAMS = "/api/v1/events"


@dataclass
class Port:
    """Where the server listens; it lives in a loop and a thread of its own."""

    number: int


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Port]:
    """A daemon's whole API, with restarts wired, in mode observe: nothing is really restarted."""
    folder = tmp_path_factory.mktemp("station")
    started, ending = threading.Event(), threading.Event()
    found: list[Port] = []

    async def serve() -> None:
        async with station(folder, mode="observe", targets=("a", "b")) as one:
            one.incident()
            found.append(Port(one.server.port))
            started.set()
            await asyncio.to_thread(ending.wait)

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(auth, "CHANGES_MAX", 10**9)  # or what comes after the sixtieth is one word
        patch.setattr(auth, "ALERTS_MAX", 10**9)
        patch.setattr(auth, "FAILURES_MAX", 10**9)
        thread.start()
        assert started.wait(60)
        yield found[0]
        ending.set()
        thread.join(60)


def asked(port: Port, method: str, path: str, body: bytes, token: str) -> tuple[int, str, bytes]:
    """Status, content type and body of one answer. Raises where none comes in time."""
    connection = http.client.HTTPConnection("127.0.0.1", port.number, timeout=ANSWER_SECONDS_MAX)
    try:
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}
        connection.request(method.upper(), path, body, headers)
        answer = connection.getresponse()
        return answer.status, answer.headers.get("Content-Type", ""), answer.read()
    finally:
        connection.close()


SCHEMA = schemathesis.openapi.from_dict(DOCUMENT)
# A reason is a line of printable characters that is not blank, which no schema says.
NOT_CHECKED = [positive_data_acceptance]


@SCHEMA.exclude(path=STREAMS).parametrize()
@examples(30)
def test_schemathesis_finds_nothing(case: schemathesis.Case, port: Port) -> None:
    """By its own checks: statuses, content types, headers and schemas as documented, no 5xx, wrong data refused."""
    case.call_and_validate(
        excluded_checks=NOT_CHECKED,
        base_url=f"http://127.0.0.1:{port.number}",
        headers={"Authorization": f"Bearer {TOKEN}"},
        timeout=ANSWER_SECONDS_MAX,
    )


def test_it_is_the_document_that_is_held(port: Port) -> None:
    """A good request of each kind is answered well: the fuzz does not only collect refusals."""
    for method, path, body in (
        ("get", "/api/v1/status", b""),
        ("get", "/api/v1/incidents?state=open", b""),
        ("get", "/api/v1/incidents/engine_stalled-a", b""),
        ("get", "/api/v1/history?target=a", b""),
        ("post", "/api/v1/incidents/engine_stalled-a/silence", b'{"reason": "x", "minutes": 1}'),
        ("post", "/api/v1/pause", b'{"reason": "x", "minutes": 1}'),
        ("post", "/api/v1/resume", b"{}"),
        ("post", "/-/reload", b""),
        ("post", "/api/v1/alertmanager", b'{"version": "4", "alerts": []}'),
    ):
        status, _, content = asked(port, method, path, body, TOKEN)
        assert status == 200, (path, content)
