"""Failures of KV cache transfer: NIXL, UCX, Mooncake, LMCache."""

from vllm_watch.diagnosis.rule import Failure, Rank, Variant, cure, rule, when

KV_TRANSFER = "kv_transfer"

RULES = (
    rule(KV_TRANSFER, "NIXL", pattern=r"Remote NIXL agent engine ID mismatch|NIXL compatibility (?:hash )?mismatch|NIXL .{0,60}(?:version|block size|block_len|layout|hash) mismatch", rank=Rank.CAUSE),
    rule(KV_TRANSFER, "NIXL transfer failure: ", pattern=r"NIXL transfer failure: \w+\s*$", rank=Rank.SYMPTOM, heals=True),
    rule(KV_TRANSFER, "NIXL transfer", "Handshake with", pattern=r"NIXL transfer failure: \w+\s*[^\s\w]|NIXL transfer (?:setup/initiation )?failed|\] Handshake with \S+ failed", rank=Rank.GENERAL, heals=True),
    rule(KV_TRANSFER, "NIXL_ERR_", pattern=r"NIXL_ERR_(?!IN_PROG\b)\w+", rank=Rank.GENERAL, heals=True),
    rule(KV_TRANSFER, "could send the inter-agent notifications", rank=Rank.GENERAL, heals=True),
    rule(KV_TRANSFER, "UCX", pattern=r"\bUCX +(?:ERROR|FATAL)\b", rank=Rank.GENERAL, heals=True),
    rule(KV_TRANSFER, "Unexpected UCX error: ", "UCX endpoint create failed", rank=Rank.GENERAL, quiet=True, heals=True),
    rule(KV_TRANSFER, "Mooncake transfer failed", "Failed to connect to segment", "Exception: Transfer Return Error", rank=Rank.GENERAL, heals=True),
    rule(KV_TRANSFER, "rdma_", "transfer_", "transport.cpp", "master_client.cpp", "coro_rpc_client", "no available RDMA devices", "No matched device found", pattern=r"\b[EF](?:\d{4}){1,2} [\d:.]+ +\d+ (?:rdma_\w+|transfer_\w+|\w+_transport|master_client)\.(?:cpp|h):\d+\] |ERROR .{0,40}coro_rpc_client\.hpp|no available RDMA devices|No matched device found", rank=Rank.GENERAL, heals=True),
    rule(KV_TRANSFER, "Error from http client, GET", pattern=r"Error from http client, GET \S+/metadata\?key=mooncake", rank=Rank.GENERAL, heals=True),
    rule(KV_TRANSFER, "LMCache WARNING", pattern=r"LMCache WARNING: (?:Remote connection failed|Failed to initialize/re-establish remote connection)", rank=Rank.SYMPTOM, quiet=True, heals=True),
    rule(KV_TRANSFER, "Failed to open segment", "Failed to submit transfer operation", "Failed to mount segment", "Failed to retrieve segment descriptor", "Mooncake Transfer Engine initialization failed", rank=Rank.GENERAL, heals=True),
    rule(KV_TRANSFER, "LMCache ERROR", pattern=r"LMCache ERROR: .{0,200}(?:[Cc]onnect|[Tt]imed? ?.?out|[Rr]emote)", rank=Rank.GENERAL, heals=True),
    rule(KV_TRANSFER, "KV load failure", pattern=r"Failing \d+ request\(s\) due to KV load failure", rank=Rank.SYMPTOM, heals=True),
    rule(KV_TRANSFER, "Releasing expired KV blocks", rank=Rank.SYMPTOM, quiet=True, heals=True),
)  # fmt: skip

FAILURES = (
    Failure(
        slug=KV_TRANSFER,
        sentence="KV could not be moved (by NIXL, UCX, Mooncake or LMCache)",
        why="Either the other side (prefill, decode, store or the cache's own process) has ended, hangs, was started with another configuration or cannot be reached, or this side cannot move memory (UCX, RDMA). Requests that need its KV fail or are computed again.",
        cures=(
            cure("check the other side: whether it runs, has the same vLLM and settings, and answers on its side channel (NIXL) or port (store)", "ss -ltn | grep PORT; curl -s http://PEER:8000/health", when(r"(?i)remote|handshake|peer|connect|expired|time.?out|retry|inter-agent|endpoint|segment|http client|refused|KV load failure|transfer fail")),
            cure("if it was restarted alone and transfers still fail, restart both sides", None, when(r"handshake|Handshake|REMOTE_DISCONNECT|expired|inter-agent")),
            cure("let UCX log the transport that fails", "UCX_LOG_LEVEL=info", when(r"UCX|NIXL_ERR")), cure("see whether it works without RDMA", "UCX_TLS=tcp,cuda_copy", when(r"UCX|NIXL_ERR", seen=r"mlx5|RoCE|rdma|ibv_|ib_m|InfiniBand", lacks=r"cuda_copy' are not available")),
            cure("if two servers share a host, give each a side channel of its own", "VLLM_NIXL_SIDE_CHANNEL_HOST=IP VLLM_NIXL_SIDE_CHANNEL_PORT=5600", when(r"[Hh]andshake")),
        ),
        deterministic=False,
        variants=(
            Variant(
                when=when(r"engine ID mismatch"),
                sentence="the handshake of NIXL reached another engine than the one that has the KV",
                why="Where no side channel is named, each server offers itself at its own default address; a prefill server that was restarted has a new ID, too.",
                cures=(cure("name, on each server, the address and port at which the other servers reach it", "VLLM_NIXL_SIDE_CHANNEL_HOST=IP VLLM_NIXL_SIDE_CHANNEL_PORT=5600", when(r"engine ID")), cure("if one side was restarted, see whether the proxy (or the other side) still holds its old ID and address; restart both")),
            ),
            Variant(
                when=when(facts=("rdma_devices",)),
                sentence="KV could not be moved: Mooncake found no RDMA device on this host and used another transport",
                why="The lines of its start name that transport, which must reach the memory of the other side.",
                cures=(cure("check the RDMA devices from inside the container", "ls /dev/infiniband; ibv_devices"), cure("or choose TCP on both sides", "--kv-transfer-config '{…, \"kv_connector_extra_config\": {\"mooncake_protocol\": \"tcp\"}}'", when(r"(?i)mooncake|transport"))),
            ),
            Variant(
                when=when(r"compatibility|mismatch"),
                sentence="the two servers of a KV transfer were started with settings that do not fit each other",
                why="Both need the same vLLM, model, types, KV cache layout and attention backend.",
                cures=(cure("compare the version and the arguments of both servers (the first lines of their logs)"),),
            ),
            Variant(
                when=when(r"expired KV blocks|lease expired"),
                sentence="KV blocks were released before the decode server fetched them",
                why="The decode server was too slow, had too long a queue, or is gone, and the time for which a prefill server keeps blocks ended. If a later line names invalid KV blocks, answers of these requests may be wrong.",
                cures=(cure("see whether the decode server keeps up: its waiting requests and its log", "curl -s http://DECODE:8000/metrics | grep num_requests_waiting"), cure("if it does, let prefill keep blocks for longer (newer releases: kv_lease_duration in --kv-transfer-config)", "VLLM_NIXL_ABORT_REQUEST_TIMEOUT=SECONDS", when(r"expired KV blocks|lease expired"))),
            ),
            Variant(
                when=when(seen=r"register_memory|transports? .{0,80} (?:is|are) not available"),
                sentence="this side cannot register its memory for the transfer",
                why="It fails before the other side is asked. UCX needs CUDA transports (cuda_copy, cuda_ipc) for GPU memory: builds without CUDA lack them.",
                cures=(cure("see which transports this UCX has", "ucx_info -d | grep -i transport"), cure("let UCX log the transport that fails", "UCX_LOG_LEVEL=info", when(seen=r"UCX|NIXL_ERR"))),
            ),
            Variant(
                when=when(r"no available RDMA|No matched device|cannot bind|initialization failed|Failed to mount segment|ibv_reg_mr|[Ff]ailed to register (?:address|memory)|registerMem"),
                sentence="the KV transfer engine could not be set up on this host",
                why="An RDMA device, its rights, or the address that it was given is missing, or it cannot register the memory (GPU memory needs GPUDirect RDMA: nvidia-peermem or DMA-BUF); the lines around it have the reason.",
                cures=(cure("see the RDMA devices and the limit of locked memory, from inside the container", "ls /dev/infiniband; ibv_devices; ulimit -l"),),
            ),
        ),
    ),
)  # fmt: skip
