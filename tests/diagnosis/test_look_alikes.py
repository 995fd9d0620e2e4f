"""Messages that resemble another failure: the sentence and the cures are of what the line shows."""

import pytest

from tests.diagnosis.whole_log import diagnose

UP = "INFO 06-22 19:30:00 [api_server.py:1] Starting vLLM API server 0 on http://0.0.0.0:8000\nINFO:     Application startup complete.\n"
STATS = "(APIServer pid=1) INFO 06-22 19:{0}:09 [v1/metrics/loggers.py:273] Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: {1} tokens/s, Running: 1 reqs, Waiting: 0 reqs, GPU KV cache usage: 1.3%, Prefix cache hit rate: 0.0%\n"
CASES = {
    "an image's libcuda is not an old driver": (
        "RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 803: system has unsupported display driver / cuda driver combination",
        "driver_cuda_mismatch", "does not belong to the host's kernel driver", "older than",
    ),
    "input is no NPU": (
        "torch.distributed.DistBackendError: NCCL error in: x.cpp:275, unhandled cuda error, NCCL version 2.20.5\n    torch.distributed.all_reduce(input_, group=self.device_group)",
        "nccl_init_failure", "between the GPUs", "NPU",
    ),
    "any free port is not the API's port": (
        'Traceback (most recent call last):\n  File "/x/vllm/utils.py", line 572, in get_open_port\n    s.bind(("", 0))\nOSError: [Errno 98] Address already in use',
        "port_in_use", "No free port was left", "--port N",
    ),
    "a probe with a wrong path": (
        "Warning  Unhealthy  25m  kubelet  Liveness probe failed: HTTP probe failed with statuscode: 404\nNormal  Killing  25m  kubelet  Container vllm failed liveness probe, will be restarted",
        "engine_dead", "the probe is wrong", "startupProbe",
    ),
    "an instruction that the CPU lacks is a cause": (
        "INFO 05-24 11:12:51 [api_server.py:1043] vLLM API server version 0.8.5\n/bin/bash: line 1: 17 Illegal instruction (core dumped) vllm serve m",
        "engine_dead", "this CPU does not have", "only the consequences",
    ),
    "memory that RDMA cannot register is not the peer": (
        "[1.8] [w:37 :0] ib_md.c:307 UCX  ERROR ibv_reg_mr(address=0x7f) failed: Bad address\nnixl_cu12._bindings.nixlBackendError: NIXL_ERR_BACKEND",
        "kv_transfer", "could not be set up on this host", "other side",
    ),
    "a transport that this side lacks is not the peer": (
        "[1746.9] [n:611 :0] ucp_context.c:1268 UCX  WARN  transports 'cuda_ipc','cuda_copy' are not available, please use one or more of: mm, tcp\nERROR 05-08 00:47:57 [core.py:396] EngineCore failed to start.\nERROR 05-08 00:47:57 [core.py:396]   File \"/x/nixl/_api.py\", line 243, in register_memory\nERROR 05-08 00:47:57 [core.py:396] nixl._bindings.nixlBackendError: NIXL_ERR_BACKEND",
        "kv_transfer", "this side cannot register its memory", "UCX_TLS=tcp",
    ),
    "blocks that expired are not lost on the way": (
        "WARNING 08-16 08:09:07 [worker.py:2967] Releasing expired KV blocks for request r1 which were retrieved by 0 remote worker(s) before lease expired.",
        "kv_transfer", "released before the decode server fetched them", "computed again",
    ),
    "a Ray cluster whose GPUs are held": (
        "ValueError: Current node has no GPU available. current_node_resource={'accelerator_type:T4': 1.0, 'CPU': 112.0}. vLLM engine cannot start without GPU.",
        "tp_exceeds_gpus", "no free GPU for this engine", "--gpus all",
    ),
    "an address is no port": (
        "(Worker_TP11 pid=355) ERROR 08-10 23:02:41 [multiproc_executor.py:962] zmq.error.ZMQError: Address already in use (addr='tcp://10.20.0.12:40043')",
        "port_in_use", "Port 40043", "Port 02",
    ),
    "an adapter's missing folder is a reason": (
        'ValueError: Loading lora ["table_qc failed: No adapter found for /x/checkpoint-57"]',
        "lora_mismatch", "not in the place that vLLM reads", "has no reason",
    ),
    "a KV cache that has no room is not a large step": (
        'ERROR 05-08 11:47:02 [core.py:1136]   File "/x/abstract.py", line 123, in initialize_from_config\ntorch.OutOfMemoryError: HIP out of memory. Tried to allocate 12.95 GiB. GPU 0 has a total capacity of 127.00 GiB of which 11.55 GiB is free.',
        "oom_kv_alloc_or_profiling", "while the KV cache was allocated", "--max-num-batched-tokens",
    ),
    "an Intel GPU has no CUDA context": (
        "xe 0000:03:00.0: [drm] GT0: Engine reset: engine_class=ccs, logical_mask: 0x1, guc_id=24",
        "xid_or_gpu_lost", "of the Intel GPU", "CUDA",
    ),
    "vLLM itself names the phase": (
        "ERROR 01-05 20:46:36 [gpu_model_runner.py:3797] Failed to load model - not enough GPU memory. Try lowering --gpu-memory-utilization. (original error: CUDA out of memory. Tried to allocate 384.00 MiB.)",
        "oom_loading_weights", "while the weights were loaded", "no line of this log shows",
    ),
    "a start that was terminated": (
        "INFO 04-29 15:02:39 [config.py:1] Initializing a V1 LLM engine (v0.8.5) with config\nWARNING 04-29 15:02:40 [logger.py:202] VLLM_TRACE_FUNCTION is enabled.\nKeyboardInterrupt: terminated",
        "unknown", "stopped from outside", "only warnings",
    ),
    "minutes without a token are not health": (
        UP + STATS.format(39, "12.5") + "".join(STATS.format(each, "0.0") for each in (40, 41)) + STATS.format(41, "0.0"),
        "unknown", "no tokens", "nothing failed",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("log", "slug", "has", "lacks"), CASES.values(), ids=CASES)
def test_a_look_alike_is_not_taken_for_the_other(log, slug, has, lacks):
    found = diagnose(log.encode())
    told = " ".join(
        (
            found.sentence,
            found.explanation,
            *(f"{each.what} {each.command}" for each in found.fixes),
        )
    )
    assert found.failure == slug, told
    assert has.lower() in told.lower()
    assert lacks.lower() not in told.lower()


def test_an_error_that_the_server_survived_is_not_called_harmless():
    log = (
        UP
        + "(APIServer pid=1) ERROR 03-10 15:23:29 [serving.py:311] Error in preprocessing prompt inputs\n"
        + STATS.format(40, "12.5")
    )
    found = diagnose(log.encode())
    assert (found.failure, found.sentence) == (
        "benign_warning_noise",
        "the server went on after this error",
    )
