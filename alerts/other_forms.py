"""The alert rules for Grafana's own alerting, and the latency objectives as OpenSLO and for Sloth."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

DATASOURCE = "prometheus"  # its uid, as in deploy/grafana/provisioning/datasources
INTERVAL = "1m"
WINDOW = "28d"
OBJECTIVES = {
    "time_to_first_token": ("vllm_watch_engine_ttft_seconds", "Time to first token"),
    "inter_token_latency": ("vllm_watch_engine_itl_seconds", "Time between output tokens"),
    "e2e_latency": ("vllm_watch_engine_e2e_seconds", "Duration of a request"),
}
LIMITS = {"time_to_first_token": "2.5", "inter_token_latency": "0.1", "e2e_latency": "60.0"}
_QUERY = re.compile(r"\bquery\b|\bfirst\b|\$one|\$of")

Rule = dict[str, Any]


def grafana(groups: list[dict[str, Any]]) -> dict[str, Any]:
    """Return a provisioning file of Grafana's alerting; recording rules stay with Prometheus."""
    made = [
        {
            "orgId": 1, "name": group["name"], "folder": "vllm-watch", "interval": INTERVAL,
            "rules": list(_rules(group)),
        }
        for group in groups
        if any("alert" in rule for rule in group["rules"])
    ]  # fmt: skip
    return {"apiVersion": 1, "groups": made}


def _rules(group: Mapping[str, Any]) -> Iterator[Rule]:
    used: dict[str, int] = {}
    for rule in group["rules"]:
        if "alert" not in rule:
            continue
        number = used[rule["alert"]] = used.get(rule["alert"], 0) + 1
        name = rule["alert"] if number == 1 else f"{rule['alert']}{number}"
        # Prometheus fires for each series that a query returns, whatever its value; Grafana for a value.
        query = {"refId": "A", "expr": rule["expr"], "instant": True}
        fires = {"refId": "B", "type": "math", "expression": "is_number($A) || is_inf($A)"}
        yield {
            "uid": name.lower()[:40],
            "title": name,
            "condition": "B",
            "data": [
                {
                    "refId": "A",
                    "relativeTimeRange": {"from": 600, "to": 0},
                    "datasourceUid": DATASOURCE,
                    "model": query,
                },
                {"refId": "B", "datasourceUid": "__expr__", "model": fires},
            ],
            "for": rule.get("for", "0s"),
            "noDataState": "OK",
            "execErrState": "Error",
            "labels": rule.get("labels", {}),
            "annotations": _annotations(rule),
        }


def _annotations(rule: Rule) -> dict[str, str]:
    """Return the annotations without those that ask Prometheus: Grafana's templates have no `query`."""
    kept = {
        key: text.replace("$value", "$values.A.Value")
        for key, text in rule["annotations"].items()
        if not _QUERY.search(text) and "<<" not in text
    }
    summary = f"{rule['alert']}: {{{{ $labels.target }}}} {{{{ $labels.engine }}}} {{{{ $labels.group }}}}"
    return {"summary": summary} | kept


def openslo(shares: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """Yield one Service and one SLO for each latency objective, as OpenSLO v1, over our histograms."""
    yield {
        "apiVersion": "openslo/v1", "kind": "Service", "metadata": {"name": "vllm"},
        "spec": {"description": "vLLM servers that vllm-watch watches"},
    }  # fmt: skip
    for objective, (family, title) in OBJECTIVES.items():
        within = f'sum(rate({family}_bucket{{le="{LIMITS[objective]}"}}[5m]))'
        yield {
            "apiVersion": "openslo/v1",
            "kind": "SLO",
            "metadata": {"name": objective.replace("_", "-"), "displayName": title},
            "spec": {
                "service": "vllm",
                "description": f"{title} within {LIMITS[objective]} s; set le to a bucket at your own limit",
                "indicator": {
                    "metadata": {"name": f"{objective.replace('_', '-')}-ratio"},
                    "spec": {
                        "ratioMetric": {
                            "counter": True,
                            "good": _source(within),
                            "total": _source(f"sum(rate({family}_count[5m]))"),
                        }
                    },
                },
                "timeWindow": [{"duration": WINDOW, "isRolling": True}],
                "budgetingMethod": "Occurrences",
                "objectives": [{"displayName": title, "target": float(shares[objective])}],
            },
        }


def sloth(shares: Mapping[str, str]) -> dict[str, Any]:
    """Return the same objectives as Sloth's own format, which makes multiwindow burn-rate alerts of them."""
    return {
        "version": "prometheus/v1",
        "service": "vllm",
        "slos": [
            {
                "name": objective.replace("_", "-"),
                "description": f"{title} within {LIMITS[objective]} s; set le to a bucket at your own limit",
                "objective": float(shares[objective]) * 100,
                "sli": {
                    "events": {
                        "error_query": f"sum(rate({family}_count[{{{{.window}}}}])) - "
                        f'sum(rate({family}_bucket{{le="{LIMITS[objective]}"}}[{{{{.window}}}}]))',
                        "total_query": f"sum(rate({family}_count[{{{{.window}}}}]))",
                    }
                },
                "alerting": {
                    "name": f"Vllm{objective.title().replace('_', '')}Objective",
                    "page_alert": {"labels": {"severity": "page"}},
                    "ticket_alert": {"labels": {"severity": "ticket"}},
                },
            }
            for objective, (family, title) in OBJECTIVES.items()
        ],
    }


def _source(query: str) -> dict[str, Any]:
    return {"metricSource": {"type": "Prometheus", "spec": {"query": query}}}
