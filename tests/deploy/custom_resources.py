"""Schemas of the custom resources in deploy/: of what is used there and no more, so a wrong key is found.

Written after the API documentation of the Prometheus Operator (monitoring.coreos.com/v1 and v1alpha1, 0.69), of KServe
(serving.kserve.io/v1beta1) and of the Gateway API (v1); their CRDs are megabytes, and are not here.
"""

from typing import Any

Schema = dict[str, Any]

TEXT: Schema = {"type": "string", "minLength": 1}
TEXTS: Schema = {"type": "object", "additionalProperties": TEXT}
DURATION: Schema = {"type": "string", "pattern": r"^([0-9]+(ms|[smhdwy]))+$"}


def keys(*required: str, **properties: Schema) -> Schema:
    return {"type": "object", "properties": properties, "required": [*required], "additionalProperties": False}  # fmt: skip


def of(items: Schema) -> Schema:
    return {"type": "array", "items": items, "minItems": 1}


def resource(group_version: str, kind: str, spec: Schema) -> Schema:
    metadata = keys("name", name=TEXT, namespace=TEXT, labels=TEXTS, annotations=TEXTS)
    return keys(
        "apiVersion", "kind", "metadata", "spec", apiVersion={"const": group_version}, kind={"const": kind},
        metadata=metadata, spec=spec,
    )  # fmt: skip


MONITORING = "monitoring.coreos.com/v1"
_RELABELINGS = of(
    keys(sourceLabels=of(TEXT), targetLabel=TEXT, replacement=TEXT, regex=TEXT, action=TEXT)
)
_SECRET_KEY = keys("name", "key", name=TEXT, key=TEXT)
_ENDPOINT = keys(
    "port", port=TEXT, interval=DURATION, scrapeTimeout=DURATION, path=TEXT, scheme={"enum": ["http", "https"]},
    honorLabels={"type": "boolean"},
    tlsConfig=keys("ca", "serverName", ca=keys("secret", secret=_SECRET_KEY), serverName=TEXT),
    relabelings=_RELABELINGS, metricRelabelings=_RELABELINGS,
)  # fmt: skip
_MONITOR = {
    "selector": keys("matchLabels", matchLabels=TEXTS),
    "namespaceSelector": keys(any={"type": "boolean"}, matchNames=of(TEXT)),
}
_RULE = keys(
    "expr", expr=TEXT, alert=TEXT, record=TEXT, labels=TEXTS, annotations=TEXTS, keep_firing_for=DURATION,
    **{"for": DURATION},
)  # fmt: skip
_GROUP = keys("name", "rules", name=TEXT, interval=DURATION, rules=of(_RULE))
_PREDICTOR = keys(
    "model", model={"type": "object"}, minReplicas={"type": "integer"}, labels=TEXTS,
    initContainers=of({"type": "object"}), volumes=of({"type": "object"}),
)  # fmt: skip

_MATCHERS = of(
    keys("name", "matchType", "value", name=TEXT, value=TEXT, matchType={"enum": ["=", "!=", "=~", "!~"]})
)  # fmt: skip
_ROUTE_KEYS = {
    "receiver": TEXT, "groupBy": of(TEXT), "groupWait": DURATION, "groupInterval": DURATION, "repeatInterval": DURATION,
}  # fmt: skip
_RECEIVER = keys(
    "name", name=TEXT,
    pagerdutyConfigs=of(keys("routingKey", routingKey=_SECRET_KEY)),
    slackConfigs=of(keys("apiURL", apiURL=_SECRET_KEY, channel=TEXT)),
    webhookConfigs=of(keys("urlSecret", urlSecret=_SECRET_KEY)),
)  # fmt: skip
_ALERTMANAGER = keys(
    "route", "receivers", "inhibitRules", receivers=of(_RECEIVER),
    route=keys("receiver", "routes", **_ROUTE_KEYS, routes=of(keys("receiver", "matchers", **_ROUTE_KEYS, matchers=_MATCHERS))),
    inhibitRules=of(keys("sourceMatch", "targetMatch", "equal", sourceMatch=_MATCHERS, targetMatch=_MATCHERS, equal=of(TEXT))),
)  # fmt: skip
_HTTP_ROUTE = keys(
    "parentRefs", "rules", parentRefs=of(keys("name", name=TEXT, namespace=TEXT)), hostnames=of(TEXT),
    rules=of(keys("backendRefs", backendRefs=of(keys("name", "port", name=TEXT, port={"type": "integer"})))),
)  # fmt: skip

SCHEMAS = {
    "AlertmanagerConfig": resource("monitoring.coreos.com/v1alpha1", "AlertmanagerConfig", _ALERTMANAGER),
    "HTTPRoute": resource("gateway.networking.k8s.io/v1", "HTTPRoute", _HTTP_ROUTE),
    "ServiceMonitor": resource(MONITORING, "ServiceMonitor", keys("selector", "endpoints", endpoints=of(_ENDPOINT), **_MONITOR)),
    "PodMonitor": resource(MONITORING, "PodMonitor", keys("selector", "podMetricsEndpoints", podMetricsEndpoints=of(_ENDPOINT), **_MONITOR)),
    "PrometheusRule": resource(MONITORING, "PrometheusRule", keys("groups", groups=of(_GROUP))),
    "InferenceService": resource("serving.kserve.io/v1beta1", "InferenceService", keys("predictor", predictor=_PREDICTOR)),
}  # fmt: skip

MODEL_OF_ITS_OWN = {"modelFormat", "storageUri", "runtime"}
"""What a model has besides the fields of a container."""


def as_pod(service: dict[str, Any]) -> dict[str, Any]:
    """An InferenceService's predictor is a pod, and its model a container: as one they are checked, too."""
    predictor = service["spec"]["predictor"]
    model = {key: each for key, each in predictor["model"].items() if key not in MODEL_OF_ITS_OWN}
    spec = {key: predictor[key] for key in ("initContainers", "volumes") if key in predictor}
    return {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x", "labels": predictor.get("labels", {})},
        "spec": spec | {"containers": [{"name": "kserve-container", "image": "x"} | model]},
    }  # fmt: skip
