"""Writes the alerts of all kinds of incidents, the other forms of the alert rules, and tuned copies of them.

python alerts/generate.py            write the kinds' part of alerts/incidents.yaml and of docs/alerts.md, and of alerts/*.yaml
                                     deploy/kubernetes/monitoring/prometheus-rule.yaml, alerts/mixin/rules.json, alerts/awesome/rules.yml,
                                     alerts/grafana/vllm-watch.yaml and alerts/openslo/*.yaml
python alerts/generate.py --check    exit 1 when one of them is stale
python alerts/generate.py --out DIR [--set NAME=VALUE]... [--without ALERT]... [--runbooks URL/] [--job NAME]
                                     write the rules to DIR as you want them, in both forms

The rule files work as they are. In them `0.5  # tune: NAME` marks a number that may be
another one elsewhere; all of one name have one value. --without leaves an alert out, whatever its file.
"""

import argparse
import json
import re
import sys
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))

import awesome
import kind_rules
import other_forms

ROOT = Path(__file__).parents[1]
SOURCES = tuple(sorted((ROOT / "alerts").glob("*.yaml")))
MIXIN = ROOT / "alerts" / "mixin" / "rules.json"
RAW = ROOT / "alerts" / "fallback" / "raw_vllm.yaml"
AWESOME = ROOT / "alerts" / "awesome" / "rules.yml"
GRAFANA = ROOT / "alerts" / "grafana" / "vllm-watch.yaml"
OPENSLO = ROOT / "alerts" / "openslo" / "objectives.yaml"
SLOTH = OPENSLO.with_name("sloth.yaml")
KUBERNETES = ROOT / "deploy" / "kubernetes" / "monitoring" / "prometheus-rule.yaml"

MADE_PARTS = {
    ROOT / "alerts" / "incidents.yaml": (
        "      # --- Made by alerts/generate.py from vllm_watch/story. Do not edit.\n", "      # --- End.\n", kind_rules.rules,
    ),
    ROOT / "docs" / "alerts.md": (
        "<!-- Made by alerts/generate.py from vllm_watch/story. -->\n", "<!-- End of kinds. -->\n", kind_rules.sections,
    ),
}  # fmt: skip
"""File → between which lines a part of it is made, and what makes it."""

TUNED = re.compile(r"([\w.]+)(\)*)[ \t]+# tune: (\w+)")
HOLE = re.compile(r"<<(\w+)>>")  # not PromQL, not a template, and a plain text in YAML
JOB = 'job="vllm-watch"'
PLATFORMS = re.compile(r" ?\(([^()]*\b(?:kubectl|Kubernetes)\b[^()]*)\)")
"""A bracket with one item for each platform."""

Rules = list[dict[str, Any]]
Values = dict[str, str]


class _Dumper(yaml.SafeDumper):
    """Texts of several lines as blocks, so that a person can read an expression."""


def _text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)
_Dumper.ignore_aliases = lambda *_: True  # type: ignore[method-assign]


def whole(file: Path) -> str:
    """The text of a file, with the part that is made as it has to be."""
    text = file.read_text()
    if file not in MADE_PARTS:
        return text
    begin, end, make = MADE_PARTS[file]
    before, _, rest = text.partition(begin)
    return f"{before}{begin}{make()}{end}{rest.partition(end)[2]}"


def source(file: Path) -> tuple[str, Values]:
    """A rule file with a hole `<<name>>` for each value that may be another one, and these values."""
    values: Values = {"job": "vllm-watch"}

    def dig(found: re.Match[str]) -> str:
        value, brackets, name = found.groups()
        if values.setdefault(name, value) != value:
            raise SystemExit(
                f"{file}: {name} is {values[name]} at one place and {value} at another"
            )
        return f"<<{name}>>{brackets}"

    text = TUNED.sub(dig, whole(file))
    return text.replace(JOB, 'job="<<job>>"'), values


def sources(files: Iterable[Path]) -> tuple[Rules, Values]:
    """The groups of several files, with their holes, and what goes into these."""
    groups: Rules = []
    values: Values = {}
    for file in files:
        text, own = source(file)
        for name, value in own.items():
            if values.setdefault(name, value) != value:
                raise SystemExit(f"{name} differs between the files of {file.parent}")
        groups += yaml.safe_load(text)["groups"]
    for rule in (rule for group in groups for rule in group["rules"] if "alert" in rule):
        base, served, name = rule["annotations"]["runbook_url"].partition("/runbooks/")
        if served:
            values["runbooks"] = base + served
            rule["annotations"] = {**rule["annotations"], "runbook_url": f"<<runbooks>>{name}"}
    return groups, values


def filled(groups: Rules, values: Mapping[str, str], without: Collection[str] = ()) -> Rules:
    """The groups with every hole filled, less the alerts that nobody wants."""
    text = HOLE.sub(lambda hole: json.dumps(values[hole[1]])[1:-1], json.dumps(groups))
    found: Rules = json.loads(text)
    for group in found:
        group["rules"] = [rule for rule in group["rules"] if rule.get("alert") not in without]
    return found


def as_file(groups: Rules) -> str:
    """A rule file of Prometheus."""
    return yaml.dump({"groups": groups}, Dumper=_Dumper, sort_keys=False, width=1000)


def _on_kubernetes(found: re.Match[str]) -> str:
    """Of `(systemctl status X, kubectl get pods)` keep the commands of Kubernetes; of a list of supervisors nothing."""
    kept = [item for item in found[1].split(", ") if item.startswith("kubectl ")]
    return f" ({', '.join(kept)})" if kept else ""


def as_kubernetes(groups: Rules) -> str:
    """A PrometheusRule of the Prometheus Operator; its texts name no other platform."""
    groups = json.loads(PLATFORMS.sub(_on_kubernetes, json.dumps(groups)))
    manifest = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": "vllm-watch", "labels": {"app.kubernetes.io/name": "vllm-watch"}},
        "spec": {"groups": groups},
    }
    return as_made([manifest])


def as_mixin(groups: Rules, values: Values) -> str:
    """What alerts/mixin/mixin.libsonnet fills in: the defaults and the groups with their holes."""
    return json.dumps({"defaults": values, "groups": groups}, indent=1) + "\n"


def as_awesome(watched: Rules, raw: Rules) -> str:
    """An entry of awesome-prometheus-alerts' _data/rules.yml."""
    watch, engine = (
        [rule for group in groups for rule in group["rules"]] for groups in (watched, raw)
    )
    head = "# Made by alerts/generate.py from alerts/*.yaml. Do not edit.\n"
    return head + yaml.dump(
        awesome.services(watch, engine), Dumper=_Dumper, sort_keys=False, width=1000
    )


def as_made(documents: Iterable[dict[str, Any]]) -> str:
    """YAML documents with a line that says who made them."""
    head = "# Made by alerts/generate.py from alerts/*.yaml. Do not edit.\n"
    return head + yaml.dump_all(documents, Dumper=_Dumper, sort_keys=False, width=1000)


def forms() -> dict[Path, str]:
    """Every file that is made, or has a part that is."""
    groups, values = sources(SOURCES)
    parts = {file: whole(file) for file in MADE_PARTS}
    objectives = {name: values[f"slo_{name}_share"] for name in other_forms.OBJECTIVES}
    return parts | {
        KUBERNETES: as_kubernetes(filled(groups, values)),
        MIXIN: as_mixin(groups, values),
        AWESOME: as_awesome(filled(groups, values), filled(*sources([RAW]))),
        GRAFANA: as_made([other_forms.grafana(filled(groups, values))]),
        OPENSLO: as_made(other_forms.openslo(objectives)),
        SLOTH: as_made([other_forms.sloth(objectives)]),
    }


def tuned(arguments: argparse.Namespace) -> dict[Path, str]:
    """What --out asks for. Ends with status 2 for a name that there is not."""
    groups, values = sources(SOURCES)
    wanted = {"job": arguments.job}
    if arguments.runbooks:
        wanted["runbooks"] = arguments.runbooks
    wanted |= dict(pair.partition("=")[::2] for pair in arguments.set)
    alerts = {rule["alert"] for group in groups for rule in group["rules"] if "alert" in rule}
    unknown = sorted((wanted.keys() - values.keys()) | (set(arguments.without) - alerts))
    if unknown:
        names = ", ".join(sorted(values.keys() - {"job", "runbooks"}))
        sys.stderr.write(
            f"There is no {', '.join(unknown)}.\nChoose of: {names}; alerts: {', '.join(sorted(alerts))}.\n"
        )
        raise SystemExit(2)
    made = filled(groups, values | wanted, arguments.without)
    if arguments.runbooks:  # that of a watcher that is gone is not served by it
        text = json.dumps(made).replace("docs/alerts.md#", f"{arguments.runbooks}alerts#")
        made = json.loads(text)
    rules = [group for group in made if group["rules"]]
    return {
        arguments.out / "vllm-watch-rules.yaml": as_file(rules),
        arguments.out / "prometheus-rule.yaml": as_kubernetes(rules),
    }


def main() -> int:
    """Write the forms, or say which are stale."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--check", action="store_true", help="exit 1 when a form is stale")
    parser.add_argument("--out", type=Path, metavar="DIR", help="write the rules as you want them")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--without", action="append", default=[], metavar="ALERT")
    parser.add_argument(
        "--runbooks",
        default="",
        metavar="URL/",
        help="your copy of the runbooks: stands before engine_down, alerts#…",
    )
    parser.add_argument("--job", default="vllm-watch", metavar="NAME", help="the scrape job's")
    arguments = parser.parse_args()
    if arguments.check:
        stale = [p for p, text in forms().items() if not p.exists() or p.read_text() != text]
        for path in stale:
            sys.stderr.write(f"{path} is stale: run python alerts/generate.py\n")
        return 1 if stale else 0
    for path, text in (tuned(arguments) if arguments.out else forms()).items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
