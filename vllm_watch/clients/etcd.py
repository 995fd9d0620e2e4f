"""etcd through the JSON gateway that every server of version 3.4 and later has. Nothing is judged here.

Its endpoints are asked one after another until one answers. A call is a connection of its own, since calls
are minutes apart.
Source: etcd.io/docs/v3.5/dev-guide/api_grpc_gateway; etcdserver/api/v3rpc for the errors.
"""

import asyncio
import base64
import json
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp

from vllm_watch.clients import http_answer
from vllm_watch.errors import WatchError
from vllm_watch.support import json_text, regular_file
from vllm_watch.support.redaction import excerpt, redacted

CALL_SECONDS = 4.0
"""For one call of one endpoint: etcd answers in milliseconds, and elects a new leader within about two seconds."""

ANSWER_BYTES_MAX = 1 << 20
"""A thousand keys of a hundred bytes, in JSON, are a third of that."""

NOT_FOUND = 5
"""The code of gRPC for a lease that has ended."""

NewSession = Callable[[aiohttp.BaseConnector | None], aiohttp.ClientSession]


class EtcdError(WatchError):
    """No endpoint answered, or the one that did would not."""

    def __init__(self, cause: str, remedy: str, *, code: int | None = None) -> None:
        super().__init__(cause, remedy)
        self.code = code  # of gRPC; None: there was no answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Where etcd is, and how it knows us."""

    endpoints: tuple[str, ...]
    ca_file: Path | None = None  # None: what the system trusts
    certificate_file: Path | None = None
    key_file: Path | None = None


class Kept(NamedTuple):
    """One key and its value."""

    key: str
    value: str
    lease_id: int  # 0: it has none


Change = tuple[str | None, Kept]
"""The value that a key has, None for one that is to be created, and what it becomes."""


class Etcd:
    """Calls one etcd. Every method raises EtcdError where no answer was had."""

    def __init__(self, access: Access, session: NewSession) -> None:
        self._access = access
        self._session = session

    async def range(self, prefix: str) -> list[Kept]:
        """Return what is kept under a prefix, as the majority knows it at this moment."""
        end = prefix[:-1] + chr(ord(prefix[-1]) + 1)
        said = await self._call("kv/range", {"key": _to(prefix), "range_end": _to(end)})
        try:
            return [
                Kept(_from(each["key"]), _from(each.get("value", "")), int(each.get("lease", 0)))
                for each in said.get("kvs", ())
            ]
        except (LookupError, TypeError, ValueError, AttributeError):
            raise _not_etcd() from None

    async def grant(self, lease_id: int, seconds: int) -> None:
        """Make a lease of our own number."""
        await self._call("lease/grant", {"ID": str(lease_id), "TTL": str(seconds)})

    async def keep(self, lease_id: int) -> bool:
        """Begin a lease's time anew; False: it has ended."""
        said = await self._call("lease/keepalive", {"ID": str(lease_id)})
        try:
            return int((said.get("result") or {}).get("TTL", 0)) > 0
        except (TypeError, ValueError, AttributeError):
            raise _not_etcd() from None

    async def revoke(self, lease_id: int) -> None:
        """End a lease and all its keys; one that has ended is fine."""
        try:
            await self._call("lease/revoke", {"ID": str(lease_id)})
        except EtcdError as error:
            if error.code != NOT_FOUND:
                raise

    async def put(self, changes: Sequence[Change]) -> bool:
        """Put all these keys, or (False) none where one has another value than it had."""
        compare = [
            {"target": "CREATE", "result": "EQUAL", "key": _to(put.key), "create_revision": "0"}
            if old is None
            else {"target": "VALUE", "result": "EQUAL", "key": _to(put.key), "value": _to(old)}
            for old, put in changes
        ]
        success = [
            {"request_put": {"key": _to(put.key), "value": _to(put.value), "lease": str(put.lease_id)}}
            for _, put in changes
        ]  # fmt: skip
        said = await self._call("kv/txn", {"compare": compare, "success": success})
        return said.get("succeeded") is True

    async def _call(self, what: str, document: dict[str, Any]) -> dict[str, Any]:
        secure = await asyncio.to_thread(self._tls)
        troubles = []
        for endpoint in self._access.endpoints:
            url = f"{endpoint.rstrip('/')}/v3/{what}"
            try:
                return await self._post(url, document, secure)
            except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
                why = excerpt(str(error), 200) or f"no answer within {CALL_SECONDS:g} s"
                troubles.append(f"{endpoint}: {why}")
        cause = f"etcd cannot be asked: {'; '.join(troubles)}"
        raise EtcdError(cause, "check restart.lock.endpoints, and etcdctl endpoint health")

    async def _post(
        self, url: str, document: dict[str, Any], secure: ssl.SSLContext | bool
    ) -> dict[str, Any]:
        timeout = aiohttp.ClientTimeout(total=CALL_SECONDS)
        async with (
            self._session(aiohttp.TCPConnector(ssl=secure)) as session,
            session.post(
                url, data=json.dumps(document), timeout=timeout, allow_redirects=False
            ) as response,
        ):
            said = json_text.read(await http_answer.body(response, ANSWER_BYTES_MAX))
        if not isinstance(said, dict):
            raise ValueError("what answers is no etcd")  # noqa: TRY004 - one kind for what is no JSON
        if response.status != 200 or "error" in said:  # noqa: PLR2004 - HTTP
            _refused(response.status, said)
        return said

    def _tls(self) -> ssl.SSLContext | bool:
        access = self._access
        if not any(each.startswith("https:") for each in access.endpoints):
            return True
        try:
            for file in (access.ca_file, access.certificate_file):
                if file is not None:
                    regular_file.check(file)
            if access.key_file is not None:
                regular_file.check(access.key_file, if_exposed="warned")
            context = ssl.create_default_context(cafile=access.ca_file)
            if access.certificate_file is not None:
                context.load_cert_chain(access.certificate_file, access.key_file)
        except (OSError, ValueError) as error:  # an SSLError is an OSError
            cause = f"the certificates of restart.lock cannot be used: {redacted(str(error))}"
            remedy = "check ca_file, certificate_file and key_file"
            raise EtcdError(cause, remedy) from None
        return context


def _not_etcd() -> EtcdError:
    return EtcdError("what answers is not etcd", "check restart.lock.endpoints")


def _refused(status: int, said: dict[str, Any]) -> None:
    """Raise what etcd says; without a leader another endpoint is asked, as after no answer."""
    error = said.get("error") or said.get("message") or ""
    text = excerpt(str(error.get("message", "") if isinstance(error, dict) else error), 200)
    code = said.get("code") or (error.get("grpc_code") if isinstance(error, dict) else None)
    if status in (500, 503, 504) and code != NOT_FOUND:
        raise ValueError(f"HTTP {status} {text}")
    raise EtcdError(f"etcd answers HTTP {status} {text}", "see docs/locks.md", code=code)


def _to(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _from(text: str) -> str:
    return base64.b64decode(text).decode(errors="replace")
