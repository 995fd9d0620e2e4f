"""Texts about collapsed engines."""

from dataclasses import replace

from vllm_watch.story.base import ELSE_IF_ADVISED, IF_ADVISED, PEER_WAIT, Cause, Story

STORY = Story(
    title="Collapsed",
    says="has collapsed",
    about="At equal load the engine delivers far less than when it was fresh.",
    cost="Users wait longer for their answers.",
    is_not="a drop in load, a burst, longer requests, or a full KV cache that serves as many requests as before",
    first_step="Compare it with its peers on the status page before you restart it.",
    causes={
        "kv_pinning": Cause(
            "pinned KV cache", "a few requests, or none, hold the KV cache",
            first_step=f"Find the clients that send long requests (API log), disconnect them at the gateway, and limit max_tokens and prompt length{ELSE_IF_ADVISED}",
            restart="No restart is advised: the long requests would come back.",
            family="cache",
        ),
        "preemption_thrash": Cause(
            "preemption thrash", "long requests preempt each other",
            first_step="Lower --max-num-seqs or the length limits, or add KV cache or replicas.",
            restart="A restart does not help: the long requests come back.",
            family="cache",
        ),
        "kv_leak": Cause(
            "KV cache leak", "pages of the KV cache leak",
            first_step=f"Take it out of the load balancer and give the running requests a minute{IF_ADVISED}",
            restart="No restart is advised yet: it is not certain that pages leak.",
            family="cache",
        ),
        "peer_wait": replace(
            PEER_WAIT, seen="requests hold the KV cache while they wait for KV from another server", family="cache"
        ),
        "slow_engine": Cause(
            "slow steps", "each step takes longer",
            first_step=f"Look on its host for other load (top), CPU throttling (turbostat) and a PCIe link below its maximum (nvidia-smi -q, Link Width){ELSE_IF_ADVISED}",
            restart="No restart is advised yet: check the host first.",
            family="slow",
        ),
        "slow_release": Cause(
            "a slower release", "each step takes longer since the vLLM release changed",
            first_step="Roll back to the previous release (the incident names it), and report the slowdown to vLLM with both versions.",
            restart="A restart does not help: the same release comes back.",
            family="slow",
        ),
        "thermal_throttle": Cause(
            "GPU slowed by heat or power", "a GPU throttles for heat or power",
            first_step="Run nvidia-smi -q -d PERFORMANCE,TEMPERATURE; check fans, airflow, power supply and power limit.",
            restart="A restart does not help: it does not cool the GPU.",
            family="slow",
        ),
        "neighbour_contention": Cause(
            "a neighbour takes the GPU or the CPU", "another process computes on its GPU, or it waits for a CPU",
            first_step="Stop or move the cause in the evidence (vllm-watch gpus shows who uses its GPU), or give the engine more CPUs "
            "if it waits for one.",
            restart="A restart does not help: the neighbour stays.",
            family="slow",
        ),
        "spec_acceptance": Cause(
            "drafts are not accepted", "far fewer drafted tokens are accepted than usual",
            first_step="Check the drafter (is it the one for this model?) and the current requests; turn speculative decoding off if it stays so.",
            restart="A restart does not help: the same drafter meets the same traffic.",
            family="drafts",
        ),
        "unknown": Cause(
            "cause unknown", "the cause is not known yet",
            first_step="If the evidence shows stuck requests, find them in the API log and cancel them at their clients; else compare the engine with its peers on the status page before you restart it.",
        ),
    },
    charts=("current_generation_tokens_per_second", "kv_cache_usage_ratio", "step_time_seconds"),
)  # fmt: skip
