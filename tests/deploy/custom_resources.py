"""Schemas of the custom resources in deploy/kubernetes: of what is used there and no more, so a wrong key is found.

Written after the API documentation of the Prometheus Operator (monitoring.coreos.com/v1, 0.69) and of KServe
(serving.kserve.io/v1beta1); their CRDs are megabytes, and are not here.
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
_ENDPOINT = keys(
    "port", port=TEXT, interval=DURATION, scrapeTimeout=DURATION, path=TEXT, scheme={"enum": ["http", "https"]},
    honorLabels={"type": "boolean"},
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

SCHEMAS = {
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
