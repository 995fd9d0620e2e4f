"""The details of an alert: since when, how bad, where; and its links, with and without an external_url."""

from pathlib import Path

import pytest

from tests.alerts.stories import ROOT, SCRAPED, Series, alert_of, answered, asked, incident, series

URL = "https://watch.example/gpu-7"
OF_ENGINE = {"target": "a", "engine": "0", "model_name": "m"}
PLACE = " Pod vllm-0. Node gpu-7. Model m."
CASES = {
    "engine_stalled hang": "Since 1970-01-01 00:01:00 UTC. No progress for 2m 10s. Requests: 23 running, 31 waiting." + PLACE,
    "engine_down crash": "Since 1970-01-01 00:01:00 UTC. No progress for 2m 10s. When last scraped: 23 running, 31 waiting." + PLACE,
    "throughput_collapse slow_engine": "Since 1970-01-01 00:01:00 UTC. Throughput: 41% of its own when fresh. "
    "Requests: 23 running, 31 waiting." + PLACE,
    "overload demand": "Since 1970-01-01 00:01:00 UTC. Requests: 23 running, 31 waiting." + PLACE,
    "host_memory_growth leak": "Since 1970-01-01 00:01:00 UTC." + PLACE,
}  # fmt: skip


def of(kind: str, cause: str) -> tuple[Series, ...]:
    """A pod with this incident; its last progress was at 50 s, the trouble began at 60 s."""
    labels = {"target": "a", "kind": kind, "cause": cause, "severity": "page"}
    return (
        series("vllm_watch_target_info", "1x40", target="a", group="solo", pod="vllm-0", node="gpu-7"),
        series("vllm_watch_engine_state", "1x40", **OF_ENGINE, state="stalled"),
        incident("a", kind, cause),
        series("vllm_watch_incident_began_timestamp_seconds", "60x40", **labels),
        series("vllm_watch_engine_last_progress_timestamp_seconds", "50x40", **OF_ENGINE),
        series("vllm_watch_engine_throughput_ratio", "0.41x40", **OF_ENGINE),
        series("vllm_watch_engine_requests_running", "23x40", **OF_ENGINE),
        series("vllm_watch_engine_requests_waiting", "31x40", **OF_ENGINE),
    )  # fmt: skip


def said(told: tuple[Series, ...], alert: str, folder: Path) -> str:
    """What promtool says of an alert at the third minute when it is told to expect none."""
    check = {"eval_time": "3m", "alertname": alert, "exp_alerts": []}
    return answered(folder, asked([ROOT / "alerts/incidents.yaml"], told, alert_rule_test=[check]))[1]  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_numbers_and_place(case: str, tmp_path: Path) -> None:
    """As last seen, of this server alone; the scope is left out where it is one."""
    kind, cause = case.split()
    found = said(of(kind, cause), alert_of(kind), tmp_path)
    assert f'details="{CASES[case]}"' in found
    assert 'scope=""' in found


def test_links_begin_with_where_people_reach_the_page(tmp_path: Path) -> None:
    """What the watcher says of itself, else what Prometheus scrapes."""
    told = of("engine_stalled", "hang")
    there = series("vllm_watch_external_url_info", "1x40", url=URL)
    for more, base in (((there,), URL), ((), f"http://{SCRAPED['instance']}")):
        found = said((*told, *more), "VllmEngineStalled", tmp_path)
        assert f'page_url="{base}/#target-a"' in found
        assert f'runbook_url="{base}/runbooks/engine_stalled"' in found
