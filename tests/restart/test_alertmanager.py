"""Alertmanager's webhook: a routed alert asks for a restart through the guard, once, and takes it back when it ends."""

import time
from datetime import UTC, datetime

import pytest

from tests.restart.station import station
from vllm_watch.state.attempt import Attempt

PATH = "/api/v1/alertmanager"


def alert(fingerprint="f1", status="firing", began="2026-03-01T12:00:00Z", **labels):
    return {
        "status": status, "fingerprint": fingerprint, "startsAt": began,
        "endsAt": "0001-01-01T00:00:00Z", "generatorURL": "http://prometheus/graph",
        "labels": {"alertname": "EngineStuck", **(labels or {"target": "a"})},
        "annotations": {"summary": "stuck"},
    }  # fmt: skip


def payload(*alerts):
    """As Alertmanager 0.27 sends it."""
    return {
        "version": "4", "groupKey": '{}:{alertname="EngineStuck"}', "truncatedAlerts": 0,
        "status": "firing", "receiver": "vllm-watch", "groupLabels": {}, "commonLabels": {},
        "commonAnnotations": {}, "externalURL": "http://alertmanager", "alerts": list(alerts),
    }  # fmt: skip


TARGETS = {
    "by its name": ({"target": "a"}, "asked"),
    "by its address": ({"instance": "10.0.0.1:8000"}, "asked"),
    "of nobody here": ({"target": "zz"}, "ignored"),
    "without a target": ({"job": "vllm"}, "ignored"),
    "a name goes before an address": ({"target": "zz", "instance": "10.0.0.1:8000"}, "ignored"),
}


@pytest.mark.parametrize(("labels", "what"), TARGETS.values(), ids=TARGETS)
async def test_whose_alert_it_is(tmp_path, labels, what):
    """An alert that names no target of ours is answered with 200: sending it again would not help."""
    async with station(tmp_path) as one:
        status, said = await one.ask(PATH, payload(alert(**labels)))
        assert status == 200
        assert said[what] == ["f1"]
        assert len(await one.decided()) == (what == "asked")


async def test_the_same_alert_is_one_request(tmp_path):
    """However often it is sent; and its end takes it back."""
    async with station(tmp_path) as one:
        assert (await one.ask(PATH, payload(alert())))[1]["asked"] == ["f1"]
        assert (await one.ask(PATH, payload(alert())))[1]["known"] == ["f1"]
        (pending,) = await one.decided()
        assert pending.request.trigger == "alertmanager"
        assert pending.decision.check == "approval"
        assert (await one.ask(PATH, payload(alert(status="resolved"))))[1]["cancelled"] == ["f1"]
        assert await one.decided() == []
        assert [(e.actor, e.before, e.after) for e in await one.entries("alert")] == [
            ("anna", "", "asked for"), ("anna", "asked for", "it is resolved"),
        ]  # fmt: skip


async def test_two_alerts_for_one_target(tmp_path):
    """While one of them fires, the target is asked for."""
    async with station(tmp_path) as one:
        await one.ask(PATH, payload(alert(), alert("f2", target="a", alertname="Other")))
        await one.ask(PATH, payload(alert(status="resolved")))
        (pending,) = await one.decided()
        assert "alert Other (f2)" in pending.request.reason
        await one.ask(PATH, payload(alert("f2", "resolved", target="a")))
        assert await one.decided() == []


async def test_an_episode_is_restarted_once(tmp_path):
    """An alert that fires on after its restart asks no more; when it fires anew, it does."""
    async with station(tmp_path) as one:
        now_t = time.time()
        await one.journal.write(Attempt(
            id="x", target="a", group="g", trigger="alertmanager", hook="h", actor="vllm-watch",
            reason="alert EngineStuck (f1) fires since 2026-03-01T12:00:00Z", state="did_not_help",
            began_t=now_t - 9, called_t=now_t - 9, ended_t=now_t - 5,
        ))  # fmt: skip
        assert (await one.ask(PATH, payload(alert())))[1]["known"] == ["f1"]
        again = alert(began=f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%fZ}")
        assert (await one.ask(PATH, payload(again)))[1]["asked"] == ["f1"]


async def test_an_episode_from_before_a_restart_that_helped_is_over(tmp_path):
    """Whoever asked for that: the alert may go on firing for a while."""
    async with station(tmp_path) as one:
        now_t = time.time()
        await one.journal.write(Attempt(
            id="x", target="a", group="g", trigger="incident", hook="h", actor="vllm-watch", reason="no step",
            state="helped", began_t=now_t - 9, called_t=now_t - 9, ended_t=now_t - 5,
        ))  # fmt: skip
        assert (await one.ask(PATH, payload(alert())))[1]["known"] == ["f1"]
        for began in (f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%fZ}", "no time at all"):
            again = alert(began, began=began)
            assert (await one.ask(PATH, payload(again)))[1]["asked"] == [began]


REFUSED = {
    "of another version": ({**payload(), "version": "3"}, 400),
    "without alerts": ({"version": "4"}, 400),
    "an alert without a fingerprint": (payload({"status": "firing", "labels": {}}), 400),
    "an alert without labels": (payload({"status": "firing", "fingerprint": "x"}), 400),
    "an alert of another status": (payload({**alert(), "status": "odd"}), 400),
}


@pytest.mark.parametrize(("document", "status"), REFUSED.values(), ids=REFUSED)
async def test_what_is_no_alert_is_not_sent_again(tmp_path, document, status):
    """4xx: Alertmanager gives up, and its log says why."""
    async with station(tmp_path) as one:
        answer, said = await one.ask(PATH, document)
        assert answer == status
        assert said["error"]


async def test_what_cannot_be_written_down_is_sent_again(tmp_path):
    """503: Alertmanager tries again; nothing was asked for."""
    async with station(tmp_path) as one:
        await one.journal.close()
        assert (await one.ask(PATH, payload(alert())))[0] == 503
        assert one.restarts.dispatcher.waiting("a") == []
