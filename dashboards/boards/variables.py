"""What can be chosen at the top of a dashboard; the same name means the same on each, so links carry it over."""

from collections.abc import Sequence

from grafana_foundation_sdk.builders import dashboard
from grafana_foundation_sdk.models import dashboard as model

from .style import DATASOURCE

Variable = dashboard.DatasourceVariable | dashboard.QueryVariable


def datasource() -> dashboard.DatasourceVariable:
    """Choose the Prometheus that scrapes vllm-watch."""
    return dashboard.DatasourceVariable("datasource").label("Data source").type("prometheus")


def _asked(name: str, label: str, query: str, description: str) -> dashboard.QueryVariable:
    variable = dashboard.QueryVariable(name).label(label).description(description)
    variable.datasource(DATASOURCE).query(query)
    variable.refresh(model.VariableRefresh.ON_TIME_RANGE_CHANGED)
    return variable.sort(model.VariableSort.ALPHABETICAL_ASC)


def several(
    name: str, label: str, query: str, description: str, *, all_value: str | None = None
) -> dashboard.QueryVariable:
    """Several can be chosen, at first all. `all_value`: what All is; None: every name that there is now."""
    variable = _asked(name, label, query, description).multi(True).include_all(True)
    if all_value is not None:
        variable.all_value(all_value)
    return variable.current(model.VariableOption(selected=True, text="All", value="$__all"))


def one(name: str, label: str, query: str, description: str) -> dashboard.QueryVariable:
    """Exactly one is chosen."""
    return _asked(name, label, query, description)


def _where() -> Sequence[Variable]:
    """Namespace and model, which narrow what can be chosen below them."""
    of_namespace = '{namespace=~"$namespace"}'
    return (
        several("namespace", "Namespace", "label_values(vllm_watch_target_info, namespace)",
                "Of Kubernetes; targets elsewhere have none, and are among All.", all_value=".*"),
        several("model_name", "Model", f"label_values(vllm_watch_target_info{of_namespace}, model_name)",
                "As vLLM names it.", all_value=".*"),
    )  # fmt: skip


_CHOSEN = 'namespace=~"$namespace", model_name=~"$model_name"'
_GROUPS = f"label_values(vllm_watch_target_info{{{_CHOSEN}}}, group)"
_TARGETS = f'label_values(vllm_watch_target_info{{{_CHOSEN}, group=~"$group"}}, target)'


def _watchers() -> dashboard.QueryVariable:
    # A watcher without targets has no namespace; its build_info is found where none is chosen.
    any_of = '__name__=~"vllm_watch_target_info|vllm_watch_build_info"'
    return several("instance", "Watcher", f"label_values({{{any_of}, {_CHOSEN}}}, instance)",
                   "vllm-watch processes, as Prometheus names them.")  # fmt: skip


def of_fleet() -> Sequence[Variable]:
    """Watchers, groups, and their targets."""
    # Not `.*`, but all names: so the panels of a target that is gone are empty, and say so.
    return (
        datasource(), *_where(), _watchers(),
        several("group", "Group", _GROUPS, "What outlives a single server: a Deployment, a StatefulSet."),
        several("target", "Target", _TARGETS, "vLLM servers."),
    )  # fmt: skip


def of_engine() -> Sequence[Variable]:
    """One target and its engines, the watcher that looks at it, and the GPUs that this watcher sees."""
    return (
        datasource(), *_where(),
        several("group", "Group", _GROUPS, "Narrows the list of targets."),
        one("target", "Target", _TARGETS, "One vLLM server."),
        one("instance", "Watcher", 'label_values(vllm_watch_target_info{target="$target"}, instance)',
            "The vllm-watch that scrapes it."),
        several("engine", "Engine", f"label_values(vllm_watch_engine_state{{{_ONE}}}, engine)",
                "Data-parallel engines of the server.", all_value=".*"),
        several("gpu", "GPU", 'label_values(vllm_watch_gpu_info{instance="$instance"}, index)',
                "GPUs that the watcher sees. Which of them the engine uses is not told: choose.", all_value=".*"),
    )  # fmt: skip


_ONE = 'instance="$instance", target="$target"'


def of_gpus() -> Sequence[Variable]:
    """Watchers, their hosts, and the GPUs there."""
    return (
        datasource(), *_where(), _watchers(),
        several("host", "Host", 'label_values(vllm_watch_gpu_info{instance=~"$instance"}, host)',
                "Hosts on which a vllm-watch sees GPUs.", all_value=".*"),
        several("gpu", "GPU", 'label_values(vllm_watch_gpu_info{host=~"$host"}, index)',
                "By index; MIG slices have one of their own.", all_value=".*"),
    )  # fmt: skip


def of_watchers() -> Sequence[Variable]:
    """The vllm-watch processes themselves."""
    return (
        datasource(), *_where(), _watchers(),
    )  # fmt: skip
