"""The records that a parser would get from a simulated server's /metrics."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from vllm_watch.samples.engine import EngineSample, Labelled
from vllm_watch.samples.observation import Reading, ServerSample

if TYPE_CHECKING:
    from vllm_watch.lab.engine import Engine
    from vllm_watch.lab.vllm import SimulatedVllm

_IDLE_OPEN_FDS = 27
_IDLE_CPU_SHARE = 0.02
_CPU_SECONDS_PER_TOKEN = 4e-5  # detokenizing and streaming
_RESIDENT_BYTES = 780_000_000.0
_SLEEP_STATES = ("awake", "weights_offloaded", "discard_all")
_ALWAYS_0 = (
    "mm_cache_queries", "mm_cache_hits", "estimated_flops_per_gpu", "estimated_read_bytes_per_gpu",
    "estimated_write_bytes_per_gpu",
)  # fmt: skip
_SPEC_SHARES = (0.55, 0.3, 0.15)  # by position in the draft


def read(vllm: "SimulatedVllm") -> Reading:
    """Return the content of /metrics, /version and /v1/models."""
    shown = vllm.engines if vllm.release.engine_label else vllm.engines[:1]
    return Reading(
        vllm=True,
        engine_kind=vllm.release.engine_kind,
        engines=tuple(_sample(vllm, engine, str(index)) for index, engine in enumerate(shown)),
        server=_server(vllm),
    )


def _server(vllm: "SimulatedVllm") -> ServerSample:
    lived_seconds = vllm.t - vllm.process_start_t
    tokens = sum(e.ledger.generation_tokens for e in vllm.engines)
    cpu_seconds = _IDLE_CPU_SHARE * lived_seconds + _CPU_SECONDS_PER_TOKEN * tokens
    sample = ServerSample(
        version=vllm.release.version,
        models=(vllm.model_name,),
        max_model_len=vllm.max_model_len,
        sleeping=vllm.sleep_level > 0,
        paused=vllm.paused,
    )
    if vllm.release.multiprocess:
        return sample
    return replace(
        sample,
        process_start_time=vllm.epoch + vllm.process_start_t,
        process_open_fds=float(_IDLE_OPEN_FDS + vllm.outstanding),
        process_cpu_seconds=round(cpu_seconds, 2),  # the kernel counts in ticks
        process_resident_memory_bytes=_RESIDENT_BYTES
        + vllm.host_leak_bytes_per_second * lived_seconds,
    )


def cache_config(vllm: "SimulatedVllm") -> Mapping[str, str]:
    """Blocks are summed over data-parallel engines, as in vLLM."""
    release, config = vllm.release, vllm.config
    blocks = config.num_gpu_blocks * len(vllm.engines)
    tokens = config.num_gpu_blocks * config.block_size
    pairs = {
        **release.cache_config,
        "block_size": str(config.block_size),
        "num_gpu_blocks": str(blocks),
    }
    if release.engine_kind == "V1":
        pairs["kv_cache_size_tokens"] = str(tokens)
        pairs["kv_cache_max_concurrency"] = str(tokens / vllm.max_model_len)
    return pairs


def lora_labels(vllm: "SimulatedVllm", running: str, waiting: str) -> dict[str, str]:
    """Adapters are joined with commas, as in vLLM."""
    return {
        "max_lora": str(vllm.max_loras),
        "running_lora_adapters": running,
        "waiting_lora_adapters": waiting,
    }


def _sample(vllm: "SimulatedVllm", engine: "Engine", label: str) -> EngineSample:
    ledger, http = engine.ledger, vllm.http.fields()
    own = _only_v1(vllm, engine) if vllm.release.engine_kind == "V1" else _only_v0(vllm, engine)
    histograms: dict[str, Any] = ledger.histograms()
    return EngineSample(
        engine=label,
        model_name=vllm.model_name,
        requests_running=float(engine.num_running),
        requests_waiting=float(engine.num_waiting),
        kv_cache_usage=engine.kv.usage_ratio,
        preemptions=float(ledger.preemptions),
        prompt_tokens=float(ledger.prompt_tokens),
        generation_tokens=float(ledger.generation_tokens),
        request_success=dict(ledger.success) or None,
        cache_config_info=cache_config(vllm),
        http=http,
        http_responses=http["requests"] if http else None,
        **histograms,
        **own,
    )


def _only_v1(vllm: "SimulatedVllm", engine: "Engine") -> dict[str, Any]:
    ledger, single = engine.ledger, not vllm.release.multiprocess
    prompt, cached = float(ledger.prompt_tokens), float(ledger.prompt_tokens_cached)
    external = float(ledger.prompt_tokens_external)
    latest = max(vllm.lora_sets, key=lambda key: vllm.lora_sets[key], default=None)
    return {
        "requests_waiting_by_reason": {"capacity": float(engine.num_waiting), "deferred": 0.0},
        "engine_sleep_state": {
            state: float(level == vllm.sleep_level) for level, state in enumerate(_SLEEP_STATES)
        },
        "prompt_tokens_by_source": {
            "local_compute": prompt - cached - external,
            "local_cache_hit": cached,
            "external_kv_transfer": external,
        },
        "prompt_tokens_cached": cached + external,
        "prompt_tokens_cached_by_source": {
            "device": float(ledger.prefix_hits),
            "host": 0.0,
            "p2p": 0.0,
            "disk": 0.0,
            "external_unspecified": float(ledger.external_hits),
        },
        "admission_rejections": {"max_num_queued_reqs": 0.0, "max_num_queued_tokens": 0.0},
        "prefix_cache_queries": float(ledger.prefix_queries),
        "prefix_cache_hits": float(ledger.prefix_hits),
        "external_prefix_cache_queries": float(ledger.external_queries),
        "external_prefix_cache_hits": float(ledger.external_hits),
        **dict.fromkeys(_ALWAYS_0, 0.0),
        "lora_requests_info": lora_labels(vllm, *latest) if latest else None,
        "process_start_time": vllm.epoch + vllm.process_start_t if single else None,
        "created_time": vllm.epoch + vllm.created_t if single else None,
        **(_speculation(vllm, engine) if vllm.spec_tokens else {}),
    }


def _speculation(vllm: "SimulatedVllm", engine: "Engine") -> dict[str, float | Labelled]:
    drafts = engine.ledger.drafts
    accepted = drafts * (engine.config.step_tokens - 1)
    later = [round(accepted * share) for share in _SPEC_SHARES[1 : vllm.spec_tokens]]
    by_position = [accepted - sum(later), *later]
    return {
        "spec_num_drafts": float(drafts),
        "spec_num_draft_tokens": float(drafts * vllm.spec_tokens),
        "spec_num_accepted_tokens": float(accepted),
        "spec_accepted_per_pos": {str(i): float(n) for i, n in enumerate(by_position)},
    }


def _only_v0(vllm: "SimulatedVllm", engine: "Engine") -> dict[str, Any]:
    hits, queries = engine.ledger.prefix_hits, engine.ledger.prefix_queries
    return {
        "requests_swapped": 0.0,
        "cpu_cache_usage": 0.0,
        "prefix_cache_hit_rate": hits / queries if queries else 0.0,
        "cpu_prefix_cache_hit_rate": -1.0,
        "lora_requests_info": lora_labels(vllm, "", ""),
    }
