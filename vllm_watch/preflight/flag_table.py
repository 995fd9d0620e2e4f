"""vLLM's flags as far as reading a command line needs them: which take no value, which several, short forms.

Source: the argument parser of vLLM 0.32 (`vllm serve --help=all`), and flags that were dropped since 0.3.
A flag that is not in here is taken to have a value where one follows.
"""

SHORT = {
    "-tp": "tensor-parallel-size", "-pp": "pipeline-parallel-size", "-dp": "data-parallel-size",
    "-dpl": "data-parallel-size-local", "-dpr": "data-parallel-start-rank", "-dpn": "data-parallel-rank",
    "-dpa": "data-parallel-address", "-dpp": "data-parallel-rpc-port", "-dpb": "data-parallel-backend",
    "-dcp": "decode-context-parallel-size", "-pcp": "prefill-context-parallel-size", "-n": "nnodes",
    "-r": "node-rank", "-q": "quantization", "-sc": "speculative-config", "-cc": "compilation-config",
    "-ac": "attention-config", "-dc": "diffusion-config", "-O": "optimization-level",
    "-asc": "api-server-count", "-ep": "enable-expert-parallel", "-dph": "data-parallel-hybrid-lb",
    "-dpe": "data-parallel-external-lb", "-dpm": "data-parallel-multi-port-external-lb",
}  # fmt: skip

ALIASES = {"device-memory-utilization": "gpu-memory-utilization"}

READ = (
    "model", "served-model-name", "tokenizer", "hf-config-path", "revision", "hf-token", "hf-overrides", "load-format", "download-dir",
    "max-model-len", "dtype", "quantization", "kv-cache-dtype", "gpu-memory-utilization",
    "kv-cache-memory-bytes", "num-gpu-blocks-override", "block-size", "max-num-seqs",
    "max-num-batched-tokens", "tensor-parallel-size", "pipeline-parallel-size", "data-parallel-size",
    "data-parallel-size-local", "decode-context-parallel-size", "prefill-context-parallel-size", "nnodes",
    "distributed-executor-backend", "data-parallel-backend", "device-ids", "device", "enforce-eager", "enable-lora",
    "max-loras", "max-lora-rank", "cpu-offload-gb", "speculative-config", "enable-prefix-caching",
    "port", "host", "uds", "headless", "skip-tokenizer-init", "config",
)  # fmt: skip
"""The flags that preflight reads; of these an unambiguous beginning is enough, as for argparse."""

VALUELESS = frozenset(
    """
    aggregate-engine-logging allow-credentials allow-deprecated-quantization async-scheduling
    calculate-kv-scales cohere-is-reasoning-model cudagraph-metrics data-parallel-external-lb
    data-parallel-hybrid-lb data-parallel-multi-port-external-lb dcp-q-replicate disable-async-output-proc
    disable-cascade-attn disable-chunked-mm-input disable-custom-all-reduce disable-fastapi-docs
    disable-frontend-multiprocessing disable-hybrid-kv-cache-manager disable-log-requests disable-log-stats
    disable-logprobs-during-spec-decoding disable-mm-preprocessor-cache
    disable-nccl-for-dp-synchronization disable-sliding-window disable-uvicorn-access-log
    enable-auto-tool-choice enable-batch-sharded-sampling enable-chunked-prefill enable-cumem-allocator
    enable-dbo enable-elastic-ep enable-ep-weight-filter enable-eplb enable-expert-parallel
    enable-fault-tolerance enable-flash-late-interaction enable-flashinfer-autotune
    enable-force-include-usage enable-hc-sp enable-layerwise-nvtx-tracing enable-log-deltas
    enable-log-outputs enable-log-requests enable-logging-iteration-details enable-lora enable-lora-bias
    enable-mamba-cache-stochastic-rounding enable-mamba-shared-prefix-checkpoint enable-metrics
    enable-mfu-metrics enable-mixed-moe-lora-format enable-mm-embeds enable-moe-shared-loras
    enable-multimodal-encoder-data-parallel enable-nccl-comm-suspend enable-offline-docs
    enable-per-request-metrics enable-prefix-caching enable-prompt-adapter enable-prompt-embeds
    enable-prompt-tokens-details enable-reasoning enable-request-id-headers
    enable-return-routed-experts enable-scale-out enable-server-load-tracking enable-shm-tensor-arena
    enable-sleep-mode enable-ssl-refresh enable-tokenizer-info-endpoint enable-tower-connector-lora
    enable-trace-replay enforce-eager exclude-tools-when-tool-choice-none fail-on-environ-validation
    fully-sharded-loras grpc headless help interleave-mm-strings jit-monitor-verbose kv-cache-metrics
    kv-sharing-fast-prefill language-model-only log-error-stack long-prefill-token-threshold-adaptive
    mm-device-do-normalize mm-encoder-only multi-step-stream-outputs numa-bind ray-workers-use-nsight
    replayssm return-sampling-mask return-tokens-as-token-ids scheduler-reserve-full-isl
    skip-mm-profiling skip-tokenizer-init sleep-mode-offload-cudagraph specialize-active-lora
    swa-bounded-replay tokens-only trust-remote-code trust-request-chat-template
    trust-request-mm-kwargs use-fp64-gumbel use-replayssm use-tqdm-on-load use-v2-block-manager
    version
    """.split()  # noqa: SIM905 - a list of 110 lines says no more
)

SEVERAL = frozenset(
    """
    allowed-media-domains api-key collect-detailed-traces cpu-offload-params cudagraph-capture-sizes
    cuda-graph-sizes ignore-patterns kv-cache-dtype-skip-layers logits-processors lora-modules
    lora-target-modules middleware numa-bind-cpus numa-bind-nodes offload-params prompt-adapters
    served-model-name sleep-preserve-parameter-names disable-access-log-for-endpoints
    """.split()  # noqa: SIM905 - as above
)
