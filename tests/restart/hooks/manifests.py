"""The manifests of a page in docs/hooks, and what a kubelet makes of a probe's command line."""

import re
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs/hooks"
FILES = {"gate.md": ("http.yaml", "python-probes.yaml")}
"""Of deploy/gate, which the page names in place of showing them."""
_REFERENCE = re.compile(r"\$(\$|\([^)]*\))")


def documents(page):
    """Every YAML document of the page and of its files, in order."""
    blocks = re.findall(r"^```yaml\n(.*?)^```", (DOCS / page).read_text(), re.MULTILINE | re.DOTALL)
    blocks += [(ROOT / "deploy/gate" / name).read_text() for name in FILES.get(page, ())]
    return [document for block in blocks for document in yaml.safe_load_all(block)]


def of_kind(page, kind):
    """The page's objects of one kind, in order."""
    return [
        document
        for document in documents(page)
        if isinstance(document, dict) and document.get("kind") == kind
    ]


def container(pod_spec, name):
    """One container of a pod."""
    return next(each for each in pod_spec["containers"] if each["name"] == name)


def as_kubernetes_runs_it(command, environment=()):
    """Expand a probe's command: $(NAME) where the container declares it, and $$ is $.

    Source: kubernetes, third_party/forked/golang/expansion; pkg/kubelet/prober runs it on exec probes.
    """

    def expanded(match):
        if match[1] == "$":
            return "$"
        return dict(environment).get(match[1][1:-1], match[0])

    return [_REFERENCE.sub(expanded, argument) for argument in command]
