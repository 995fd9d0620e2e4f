"""Writes deploy/helm/vllm-watch/README.md from the chart's values.yaml: `python docs/generate_chart.py [--check]`."""

import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from generated import write_or_check

CHART = Path(__file__).parents[1] / "deploy/helm/vllm-watch"
LINE = re.compile(r"(?P<indent> *)(?P<key>\w+):(?P<value>.*?)(?: +# (?P<text>.*))?")
HEAD = """\
# vllm-watch

<!-- Made by docs/generate_chart.py from values.yaml. Do not edit. -->

Watches the vLLM engines of a namespace, a cluster or a node, with alert rules and dashboards. Beside kube-prometheus-stack, from a clone:

```sh
helm install vllm-watch deploy/helm/vllm-watch -n llm --create-namespace --set image.repository=registry.example.org/vllm-watch --set monitoring.enabled=true --set monitoring.labels.release=kube-prometheus-stack
helm test vllm-watch -n llm
```

The page [kube-prometheus-stack in 5 minutes](../../../docs/install/kubernetes.md) goes through it; [kubernetes.md](../../../docs/kubernetes.md) says what each mode sees and may do.

- One release in a namespace, since Service and job are named `vllm-watch`. Rules and dashboards come with one release of a cluster.
- Rights follow from `config`: list and watch pods where it discovers, eviction or rollout where a hook does that, Events and a Lease where it uses them.
- Secrets are named, never written: `secretName`, `pod.env` with `valueFrom`, the receivers' `routingKey` or `apiURL`.
- `monitoring.alertmanagerConfig` matches the alerts of its own namespace unless your Alertmanager has `alertmanagerConfigMatcherStrategy: {type: None}`. With engines in
  several namespaces it needs that; so does VllmWatchAbsent.
- Mode `sidecar` installs what stands beside engine pods; its notes print the patch for an engine's Deployment.

| value | default | |
|---|---|---|
"""


def values() -> list[tuple[str, str, str]]:
    """(dotted key, default, meaning) of each value, in their order."""
    found: list[tuple[str, str, str]] = []
    path: list[str] = []
    for line in (CHART / "values.yaml").read_text().splitlines():
        if not line or line.startswith("#"):
            continue
        each = LINE.fullmatch(line)
        if each is None:
            raise SystemExit(f"values.yaml: not `key: value  # meaning`: {line}")
        path = [*path[: len(each["indent"]) // 2], each["key"]]
        if each["value"].strip():
            found.append((".".join(path), each["value"].strip(), each["text"] or ""))
    return found


def page() -> str:
    """Return the whole README."""
    rows = [f"| `{key}` | `{default}` | {text} |\n" for key, default, text in values()]
    return HEAD + "".join(rows)


if __name__ == "__main__":
    sys.exit(write_or_check({CHART / "README.md": page()}))
