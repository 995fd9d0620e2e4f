"""Who holds the VRAM? Every holder with its verdict, how it came to be so, and whether the GPU itself is healthy."""

from grafana_foundation_sdk.builders import dashboard
from grafana_foundation_sdk.models import units

from vllm_watch.story.kinds import KINDS, STORIES

from . import links, variables
from .annotations import Annotation
from .layout import Panel, Section, assembled
from .limits import STALE_BYTES_MIN
from .panels import ATTENTION_FROM_1, areas, band, lines, number, stairs
from .promql import WATCHERS
from .runbooks import runbook
from .style import NOW, PER_SECOND, PLAIN, SOON, VERDICT_COLORS, WELL, Words, colored
from .tables import Column, filled

GPU = "{{host}} GPU {{index}}"
CHOSEN = 'vllm_watch_gpu_info{instance=~"$instance", host=~"$host", index=~"$gpu"}'
ON_GPU = f"* on (job, instance, gpu) group_left (host, index) {CHOSEN}"
GPU_KINDS = "|".join(kind for kind in KINDS if STORIES[kind].of_gpus)


def _of(name: str, selector: str = "") -> str:
    return f"vllm_watch_gpu_{name}{selector} {ON_GPU}"


def _glance() -> list[Panel]:
    return [
        number("Stale VRAM", f"sum({_of('memory_stale_bytes')})",
               "Memory of processes that are judged stale: left behind, dead or forgotten. The next start of an engine fails "
               "on it; take it back with vllm-watch gpus --reclaim. " + runbook("reclaim.md"),
               units.BytesIEC, marks=((None, WELL), (STALE_BYTES_MIN, NOW)), nothing="not known", decimals=1),
        number("VRAM of no visible process", f"sum({_of('memory_unaccounted_bytes')})",
               "Some hundred MiB on each GPU are the driver's own; gigabytes are a process in another container or a context "
               "that leaked. " + runbook("detectors/stale_vram.md"), units.BytesIEC, nothing="not known", decimals=1),
        number("Free VRAM", f"sum(({_of('memory_total_bytes')}) - ({_of('memory_used_bytes')}))",
               "Free memory, the driver's reserve included. vLLM takes most of it at its start and keeps it, "
               "so little is normal.", units.BytesIEC, decimals=1),
        number("GPUs", f"count({CHOSEN})", "GPUs that the watchers of these hosts see.", nothing="none"),
        number("GPU incidents", f'count(vllm_watch_incident_open{{{WATCHERS}, kind=~"{GPU_KINDS}"}}) or 0 * count(vllm_watch_build_info{{{WATCHERS}}})',
               "Open incidents of stale memory or broken GPUs, on every host. " + runbook("detectors/gpu_fault.md"),
               marks=ATTENTION_FROM_1),
    ]  # fmt: skip


def _holders() -> Panel:
    labels = "host, index, gpu, pid, verdict, command, uid"
    share = f"(vllm_watch_gpu_holder_memory_bytes / on (job, instance, gpu) group_left () vllm_watch_gpu_memory_total_bytes) {ON_GPU}"
    return filled(
        "VRAM holders",
        [
            Column(title="Host", label="host"), Column(title="GPU", label="index", width=70),
            Column(title="Verdict", label="verdict", said=colored(VERDICT_COLORS), width=100),
            Column(title="Memory", expr=f"max by ({labels}) ({_of('holder_memory_bytes')})", unit=units.BytesIEC, decimals=1, width=120),
            Column(title="Share of the GPU", expr=f"max by ({labels}) ({share})", unit=units.PercentUnit, decimals=0, width=140),
            Column(title="Process", label="pid", width=100), Column(title="Command", label="command"),
            Column(title="User id", label="uid", width=90),
        ],
        "The 20 largest of each GPU, the rest as one. For stale memory, vllm-watch gpus on that host shows the reason and the fix; "
        "unknown is never counted as stale. " + runbook("detectors/stale_vram.md"),
        sort="Memory", nothing="The driver reports no holders.",
    )  # fmt: skip


def _memory() -> list[Panel]:
    by = f"sum by (verdict) ({_of('holder_memory_bytes')})"
    return [
        areas("VRAM held, by verdict", [(by, "{{verdict}}")],
              "Of all chosen GPUs together. Red that appears when an engine ends was left behind by it.",
              units.BytesIEC, VERDICT_COLORS),
        lines("VRAM usage", [(f"({_of('memory_used_bytes')}) / on (job, instance, gpu) group_left () vllm_watch_gpu_memory_total_bytes", GPU)],
              "Share of each GPU's memory. Full is normal for vLLM; a change is news.", units.PercentUnit, top=1),
        lines("Stale VRAM by GPU", [(f"({_of('memory_stale_bytes')}) > 0", GPU)],
              "On which GPU, and since when. " + runbook("detectors/stale_vram.md"), units.BytesIEC, nothing="nothing is stale"),
        lines("VRAM of no visible process, by GPU", [(_of("memory_unaccounted_bytes"), GPU)],
              "In use, and held by no listed process: it should stay at some hundred MiB.", units.BytesIEC,
              nothing="the driver hides what processes hold"),
        lines("VRAM reserved by the driver", [(_of("memory_reserved_bytes"), GPU)],
              "Not to be had by anybody; it grows when ECC or MIG is switched on.", units.BytesIEC),
    ]  # fmt: skip


def _well() -> list[Panel]:
    throttled = _of(
        "throttle_reason",
        '{reason!~"gpu_idle|applications_clocks_setting|sync_boost|display_clock_setting"}',
    )
    lost: Words = ((0, "there", PLAIN), (1, "lost from the bus", NOW))
    rows: Words = ((0, "none", PLAIN), (1, "at the next reset", SOON))
    return [
        band("GPU on the bus", [(_of("lost"), GPU)],
             "A GPU that fell off the bus: drain and reboot the host. " + runbook("detectors/gpu_fault.md"), lost),
        stairs("Xid errors", [(_of("xid_errors_total"), GPU + " Xid {{xid}}")],
               "Reported by the driver since the watcher started; the incident has the advice for each code. "
               + runbook("detectors/gpu_fault.md"), units.Short, nothing="no Xid was reported"),
        stairs("Uncorrectable ECC errors", [(_of("ecc_uncorrected_errors_total"), GPU)],
               "Since the driver was loaded. One that grows is a GPU to replace. " + runbook("detectors/gpu_fault.md"),
               units.Short, nothing="no ECC"),
        band("Pending row remaps", [(_of("remapped_rows_pending"), GPU)],
             "Bad memory that the next reset of the GPU puts aside.", rows),
        lines("Clock throttling", [(f"max by (host, index, reason) ({throttled}) > 0", GPU + " {{reason}}")],
              "A line while the driver lowers the clock for heat or power: steps are slower and no restart helps. "
              + runbook("detectors/throughput_collapse.md"), units.Short, top=1, nothing="no clock is held down"),
        lines("GPU temperature", [(_of("temperature_celsius"), GPU)],
              "Of the core. Each model has its own limit, at which it lowers its clock.", units.Celsius),
        lines("GPU power", [(_of("power_watts"), GPU)], "Drawn now. Low while an engine claims to be busy is a sign that it is not.", units.Watt),
        lines("GPU utilization", [(_of("utilization_ratio"), GPU)],
              "Share of time in which any kernel ran, however little of the GPU it used.",
              units.PercentUnit, top=1),
        lines("Xid error rate", [(f"sum by (host, index) (rate(vllm_watch_gpu_xid_errors_total[$__rate_interval]) {ON_GPU})", GPU)],
              "A storm of one code is one problem.", PER_SECOND, nothing="no Xid was reported"),
    ]  # fmt: skip


def board() -> dashboard.Dashboard:
    """The whole dashboard."""
    happened = [
        Annotation(
            "Stale memory, broken GPUs", NOW, f'vllm_watch_incident_open{{{WATCHERS}, kind=~"{GPU_KINDS}"}}',
            "{{kind}}: {{cause}}", "seen with {{target}}",
        ),
    ]  # fmt: skip
    return assembled(
        links.VRAM,
        "The memory of every GPU on the watchers' hosts: its holders, and whether it is in use.",
        variables.of_gpus(),
        (
            Section("", _glance(), 4, (6, 6, 5, 3, 4)),
            Section("", [_holders()], 9, (24,)),
            Section("Over time", _memory(), 8, (12, 12, 8, 8, 8)),
            Section("GPU health", _well(), 7),
        ),
        happened,
    )
