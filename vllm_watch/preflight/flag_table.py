"""The flags that preflight reads; of these an unambiguous beginning is enough, as for argparse."""

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
