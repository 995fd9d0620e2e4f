"""A cluster-wide lock in one Kubernetes Lease, with optimistic concurrency. Rights and a manifest: docs/locks.md.

The API server compares the version of one object only. Therefore one annotation holds all slots,
the restarts of the last hour and the last attempts. Source:
kubernetes.io/docs/concepts/architecture/leases.
"""

import asyncio
import json
import random
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import cache
from math import ceil
from typing import Any

from vllm_watch.clients.kubernetes import (
    Answer,
    Api,
    KubernetesError,
    in_cluster,
)
from vllm_watch.restart.hooks.base import Tools
from vllm_watch.restart.locks import record as records
from vllm_watch.restart.locks.base import HOST, Held, boottime_s
from vllm_watch.restart.locks.record import (
    Change,
    Limits,
    Now,
    Record,
    Release,
    Sightings,
    Slot,
    others,
    past_of,
)
from vllm_watch.settings.restart import LockSettings
from vllm_watch.state.attempt import Attempt
from vllm_watch.support import json_text

ANNOTATION = "vllm-watch/lock"

ASK_SECONDS = 20.0
"""Timeout of a change with all its tries. The shortest useful TTL is more than three times as long."""

TRIES_MAX = 6
"""A change is tried at most this many times. In the tests, twenty concurrent writers need five tries."""

BACKOFF_SECONDS = 0.1
"""The wait before the second try is random, and at most this long. The maximum doubles with each try."""

RETRY_AFTER_SECONDS_MAX = 5.0
"""A Retry-After header extends a wait to at most this long."""

LEFT_MAX = 1000

_OK, _GONE, _CONFLICT, _BUSY = 200, 404, 409, (429, 500, 503, 504)
_RIGHTS = (401, 403)


class Shared:
    """One Lease, shared by the locks of all attempts of this process."""

    def __init__(self, api: Api, namespace: str, name: str) -> None:
        self.sightings = Sightings()
        self._api = api
        self._folder = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._namespace, self._name = namespace, name
        self._releases: dict[str, Release] = {}  # by attempt id

    def release_later(self, release: Release) -> None:
        """Free the slot of an ended attempt with the next change of the Lease, if the slot is still taken."""
        self._releases[release.attempt_id] = release
        for oldest in list(self._releases)[:-LEFT_MAX]:
            del self._releases[oldest]

    async def change(
        self,
        update: Callable[[Record, Now], Change],
        ttl_seconds: float,
    ) -> tuple[Change, float]:
        """Apply `update` to the Lease. Return the change, and the time at which it was sent. Raises
        KubernetesError, or ValueError if vllm-watch did not write the object."""
        answer = Answer(_CONFLICT, {})
        trouble: KubernetesError | None = None
        for tries in range(TRIES_MAX):
            if tries:
                await asyncio.sleep(_wait_seconds(tries, answer))
            try:
                answer = await self._api.call("GET", f"{self._folder}/{self._name}")
                if answer.status not in (_OK, _GONE):
                    trouble = self._error(answer)
                    if answer.status not in _BUSY:
                        break
                    continue
                found = answer.document if answer.status == _OK else None
                change = self._changed(found, update)
                sent_s = boottime_s()
                if change.record is None:
                    return change, sent_s
                answer = await self._replace(found, change.record, ttl_seconds)
            except KubernetesError as error:
                trouble, answer = error, Answer(_CONFLICT, {})
                continue
            if answer.ok:
                # A write that is still in transit has an old version, so the server will reject it.
                self._releases = {
                    name: each for name, each in self._releases.items() if change.record.of(name)
                }
                return change, sent_s
            # POST returns 404 if the namespace is missing, PUT if the object was just deleted.
            faster = answer.status == _CONFLICT or (answer.status == _GONE and found is not None)
            trouble = None if faster else self._error(answer)
            if not faster and answer.status not in _BUSY:
                break
        # The conflict may be with our own write, if its response was lost.
        raise trouble or KubernetesError(
            f"{self}: others changed it {TRIES_MAX} times", "vllm-watch will try again", sent=True
        )

    def _changed(
        self, found: Mapping[str, Any] | None, update: Callable[[Record, Now], Change]
    ) -> Change:
        record = Record() if found is None else self._read(found)
        now = Now(boottime_s(), time.time())
        self.sightings.see(record, now.monotonic_s)
        for attempt_id, release in self._releases.items():
            if record.of(attempt_id) or release.ended:
                record = records.give_back(record, now, release).record or record
        return update(record, now)

    def _read(self, found: Mapping[str, Any]) -> Record:
        try:
            annotation = (found["metadata"].get("annotations") or {}).get(ANNOTATION)
        except (KeyError, AttributeError):
            raise ValueError(f"the API server's answer for {self} is not a Lease") from None
        if annotation is None:
            other = (found.get("spec") or {}).get("holderIdentity")
            if other:
                raise ValueError(
                    f"{self} belongs to {other}, which is not vllm-watch; set lock.name"
                )
            return Record()
        try:
            return Record.from_json(json_text.read(annotation))
        except ValueError as error:
            raise ValueError(
                f"{self} is damaged ({error}); delete it when no restart is under way"
            ) from None

    async def _replace(
        self, found: Mapping[str, Any] | None, record: Record, ttl_seconds: float
    ) -> Answer:
        document = _document(found, record, ttl_seconds, time.time())
        if found is None:
            document["metadata"] |= {"name": self._name, "namespace": self._namespace}
            return await self._api.call("POST", self._folder, document)
        return await self._api.call("PUT", f"{self._folder}/{self._name}", document)

    def _error(self, answer: Answer) -> KubernetesError:
        remedy = "see whether the API server is healthy"
        if answer.status in _RIGHTS:
            remedy = "give the service account the rights of docs/locks.md"
        return KubernetesError(f"{self}: {answer.said()}", remedy, sent=True)

    def __str__(self) -> str:
        return f"Lease {self._namespace}/{self._name}"


_shared = cache(Shared)


def make(settings: LockSettings, tools: Tools) -> "Lock":
    """Return a lock for one attempt. Raises KubernetesError outside a pod."""
    api = in_cluster(tools.environ, tools.session)
    namespace = settings.namespace or api.namespace or tools.namespace
    if not namespace:
        remedy = "set restart.lock.namespace"
        raise KubernetesError("the namespace of the Lease is unknown", remedy, sent=False)
    shared = _shared(api, namespace, settings.name)
    limits = Limits(slots=settings.slots, per_hour=settings.restarts_per_hour_max)
    return Lock(shared, limits, settings.ttl_seconds)


class Lock:
    """One slot of a Lease, for one attempt."""

    def __init__(self, shared: Shared, limits: Limits, ttl_seconds: float) -> None:
        self.ttl_seconds = ttl_seconds
        self._shared, self._limits = shared, limits
        self._attempt_id: str | None = None
        self._until_s = 0.0

    async def acquire(self, holder: str, attempt_id: str, attempt: Attempt | None = None) -> Held:
        wanted = Slot(holder=holder, attempt_id=attempt_id, ttl_seconds=self.ttl_seconds)
        begins, taken, held = past_of(attempt, HOST), False, None

        def take(record: Record, now: Now) -> Change:
            nonlocal taken
            change = records.take(record, self._shared.sightings, self._limits, now, wanted, begins)
            taken = taken or (change.record is not None and record.of(attempt_id) is None)
            return change

        try:
            held = await self._change(take, attempt_id)
        finally:
            if taken and (held is None or held.held is None):
                self._shared.release_later(Release(attempt_id, used=False))
        if held.held is True:
            self._attempt_id = attempt_id
        return held

    async def renew(self, attempt: Attempt | None = None) -> Held:
        mine = self._attempt_id
        if mine is None:
            return Held(held=False, text="it is not held")
        stands = past_of(attempt, HOST)
        held = await self._change(lambda record, now: records.renew(record, mine, stands), mine)
        if held.held is False:
            self._until_s = 0.0
        return held

    def still_ours(self) -> bool:
        return self._attempt_id is not None and boottime_s() < self._until_s

    async def release(
        self, delay_seconds: float = 0.0, *, used: bool = True, ended: Attempt | None = None
    ) -> None:
        mine, self._attempt_id = self._attempt_id, None
        mine = mine if ended is None else ended.id
        if mine is None:
            return
        release = Release(mine, delay_seconds, used=used, ended=past_of(ended, HOST))
        given: bool | None = None
        try:
            held = await self._change(
                lambda record, now: records.give_back(record, now, release), mine
            )
            given = held.held
        finally:
            if given is None:  # our next change frees the slot, or the slot expires
                self._shared.release_later(release)

    async def _change(self, update: Callable[[Record, Now], Change], attempt_id: str) -> Held:
        try:
            async with asyncio.timeout(ASK_SECONDS):
                change, sent_s = await self._shared.change(update, self.ttl_seconds)
        except TimeoutError:
            text = f"{self._shared}: no answer within {ASK_SECONDS:.0f} s"
            return Held(held=None, text=text)
        except KubernetesError as error:
            return Held(held=None, text=f"{error.cause}; {error.remedy}")
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            return Held(held=None, text=str(error))
        if change.record is None:
            return Held(held=False, text=change.text)
        self._until_s = sent_s + self.ttl_seconds
        record = change.record
        held = {slot.attempt_id for slot in record.held}
        return Held(
            held=True, text=f"held for {self.ttl_seconds:.0f} s",
            others=others(record.past, held, HOST, attempt_id),
        )  # fmt: skip


def _wait_seconds(tries: int, answer: Answer) -> float:
    if answer.status in _BUSY and answer.retry_after_seconds is not None:
        return min(answer.retry_after_seconds, RETRY_AFTER_SECONDS_MAX)
    return random.uniform(0, BACKOFF_SECONDS * 2**tries)  # noqa: S311


def _document(
    found: Mapping[str, Any] | None, record: Record, ttl_seconds: float, now_t: float
) -> dict[str, Any]:
    old: Mapping[str, Any] = found or {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
    metadata, spec = dict(old.get("metadata") or {}), dict(old.get("spec") or {})
    annotation = json.dumps(record.to_json(), separators=(",", ":"))
    metadata["annotations"] = {**(metadata.get("annotations") or {}), ANNOTATION: annotation}
    held = record.held
    now = f"{datetime.fromtimestamp(now_t, UTC):%Y-%m-%dT%H:%M:%S.%f}Z"
    holder = ", ".join(slot.holder for slot in held) or None
    if held and holder != spec.get("holderIdentity"):
        spec["acquireTime"] = now
        spec["leaseTransitions"] = int(spec.get("leaseTransitions") or 0) + 1
    spec |= {
        "holderIdentity": holder, "renewTime": now, "leaseDurationSeconds": ceil(ttl_seconds),
    }  # fmt: skip
    return {**old, "metadata": metadata, "spec": spec}
