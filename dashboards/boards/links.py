"""From one dashboard to the next, with what was chosen carried over, and on to vLLM's own."""

from grafana_foundation_sdk.builders import dashboard
from grafana_foundation_sdk.models import dashboard as model

OVERVIEW, ENGINE, VRAM, RESTARTS, WATCHER = (
    "vllm-watch-overview", "vllm-watch-engine", "vllm-watch-vram", "vllm-watch-restarts", "vllm-watch-watcher",
)  # fmt: skip
TITLES = {
    OVERVIEW: "Is anything wrong?",
    ENGINE: "What is wrong with this engine?",
    VRAM: "Who holds the VRAM?",
    RESTARTS: "What did the restarts do?",
    WATCHER: "Is the watcher healthy?",
}
VLLM_TAG = "vllm"  # vLLM's own dashboards bear it, and list each other, and ours, by it


def top(here: str) -> list[dashboard.DashboardLink]:
    """At the top right: the other questions, then whatever else is there about vLLM."""
    found = []
    for uid, title in TITLES.items():
        if uid != here:
            link = dashboard.DashboardLink(title).type(model.DashboardLinkType.LINK)
            link.icon("dashboard").url(f"/d/{uid}").tooltip("With the same time and targets.")
            found.append(link.include_vars(True).keep_time(True))
    others = dashboard.DashboardLink("vLLM's own").type(model.DashboardLinkType.DASHBOARDS)
    others.tags([VLLM_TAG]).as_dropdown(True).icon("external link")
    others.tooltip("Load, latency and caches in depth: dashboards with the tag vllm.")
    return [*found, others.include_vars(True).keep_time(True)]


def to(uid: str, title: str, **variables: str) -> dict[str, str]:
    """A link of a cell or a line: `variables` are set, the data source and the time range go along."""
    chosen = "".join(f"&var-{name}={value}" for name, value in variables.items())
    return {
        "title": title,
        "url": f"/d/{uid}?${{datasource:queryparam}}{chosen}&${{__url_time_range}}",
    }


def to_engine(target: str = "${__data.fields.Target}", instance: str = "${__data.fields.Watcher}") -> dict[str, str]:  # fmt: skip
    """Go to one engine's dashboard from where its target is named."""
    return to(ENGINE, TITLES[ENGINE], target=target, instance=instance)
