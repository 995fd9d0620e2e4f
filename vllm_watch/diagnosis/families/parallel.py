"""Many GPUs and many processes: tensor parallelism, NCCL, Ray, shared memory, ports."""

from vllm_watch.diagnosis.families import parallel_numbers
from vllm_watch.diagnosis.report import Fix
from vllm_watch.diagnosis.rule import Failure, Rank, rule

TP_GPUS = "tp_exceeds_gpus"
TP_HEADS = "tp_not_dividing_heads"
NCCL = "nccl_init_failure"
NCCL_TIMEOUT = "nccl_timeout"
SHM = "shm_broadcast_hang"
RAY = "ray_failure"
PORT = "port_in_use"

RULES = (
    rule(TP_GPUS, "World size (", pattern=r"World size \(\d+\) is larger than the number of available GPUs"),
    rule(TP_GPUS, "number of required", pattern=r"number of required \w+ exceeds the total number of available", quiet=True),
    rule(TP_GPUS, "less than max local gpu count", "cannot be larger than the number of available GPUs", "Current node has no GPU available", "invalid device ordinal", "hipErrorInvalidDevice"),
    rule(TP_GPUS, "is out of range for", "out of bounds", "assert", pattern=r"--device-ids index \d+ is out of range|DP adjusted local rank \d+ is out of bounds|device >= 0 && device < num_gpus"),
    rule(TP_HEADS, "must be divisible by", pattern=r"(?:heads?|layers|vocab\w{0,20}|size|partitions?)\b.{0,40}must be divisible by (?:the )?(?:tensor|pipeline|tp|TP|`?tensor_parallel|num_gpus|world)"),
    rule(TP_HEADS, "not divisible by", "divisible by tp", pattern=r"(?:AssertionError|ValueError|ShardError).{0,200}\bis not divisible by (?:tp_size|TP|total_num_kv_heads|min_|group_size|weight quantization block|pack_factor|\d+)|should be divisible by tp_size"),
    rule(TP_HEADS, "not divisible by", pattern=r"\b\d+ is not divisible by \d+", rank=Rank.GENERAL),
    rule(NCCL_TIMEOUT, "timeout", pattern=r"Watchdog caught collective operation timeout|collective operation timeout: Work"),
    rule(NCCL_TIMEOUT, "milliseconds before timing out", "Some NCCL operations have failed or timed out", "Heartbeat monitor timed out!", "Timeout at NCCL work", "Timeout waiting for key: default_pg", rank=Rank.GENERAL),
    rule(NCCL_TIMEOUT, "Timed out waiting", "Wait timeout", "wait timeout", pattern=r"[Tt]imed out waiting \d+ ?ms for (?:send|recv) operation|[Ww]ait timeout after \d+ ?ms", rank=Rank.GENERAL),
    rule(NCCL, "ncclUnhandledCudaError", "ncclSystemError", "ncclInternalError", "ncclInvalidUsage", "ncclInvalidArgument", "ncclRemoteError", rank=Rank.GENERAL),
    rule(NCCL, "NCCL error", "NCCL Error", "RCCL error", "HCCL error", pattern=r"(?:NCCL|RCCL|HCCL) [eE]rror(?: in)?:? |NCCL error in:|NCCL Error \d", rank=Rank.GENERAL),
    rule(NCCL, "ncclCommInitRank", "ncclGetUniqueId", "ncclCommInitRankConfig", pattern=r"nccl(?:CommInitRank|CommInitRankConfig|GetUniqueId)\b.{0,800}(?:fail|error)", rank=Rank.GENERAL),
    rule(NCCL, "Duplicate GPU detected", "DistBackendError", "Error while creating shared memory segment /dev/shm/nccl", "Bootstrap : no socket interface found", "No socket interface found", rank=Rank.GENERAL),
    rule(NCCL, "NCCL WARN", pattern=r"NCCL WARN .{0,800}(?:[Ff]ailed|[Ee]rror|out of memory|[Tt]imeout|No route|refused)", rank=Rank.SYMPTOM),
    rule(NCCL, "connectFullMesh", "DistStoreError", "DistNetworkError", "RendezvousConnectionError", "waiting for clients", "Connection closed by peer", pattern=r"Gloo connectFullMesh failed|DistStoreError|DistNetworkError: (?!.{0,800}EADDRINUSE)|RendezvousConnectionError|waiting for clients\. \d+/\d+ clients joined|gloo.{0,800}Connection closed by peer", rank=Rank.GENERAL),
    rule(NCCL, "client socket has timed out", "client socket has failed to connect", rank=Rank.GENERAL),
    rule(SHM, "No available", pattern=r"No available (?:shared memory broadcast )?block found in \d+ ?(?:second|s\b)", rank=Rank.SYMPTOM, quiet=True, heals=True),
    rule(SHM, "RPC call to", pattern=r"RPC call to \w+ timed out", rank=Rank.SYMPTOM),
    rule(RAY, "aylet", pattern=r"Unable to register worker with raylet|Failed to register worker .{0,800}[Rr]aylet|Failed to connect to (?:the )?[Rr]aylet|[Rr]aylet.{0,40}(?:died|has failed|is dead|exited)"),
    rule(TP_GPUS, "exceeds available GPUs", rank=Rank.GENERAL, quiet=True),
    rule(RAY, "does not allocate any GPUs on the driver node"),
    rule(RAY, "file_system_monitor", "Object creation will fail", rank=Rank.GENERAL, quiet=True),
    rule(RAY, "KeyError: 'bundles'", rank=Rank.GENERAL),
    rule(RAY, "Could not find any running Ray instance", "node_ip_address.json", "Can't find a `node_ip_address", "Version mismatch: The cluster was started with", "Failed to connect to GCS", "Every node should have a unique IP", "Ray cluster does not have enough resources", "Failed to start the dashboard", "This node has an IP address of", "Ran into exception when trying to connect to Ray", "ray.init() has not been called", "Unable to connect to GCS", rank=Rank.GENERAL),
    rule(RAY, "placement group", pattern=r"(?:Cannot|Unable to) (?:provide|create|schedule) (?:a )?placement group|[Pp]lacement group.{0,80}(?:not ready|timed out|infeasible|cannot be (?:scheduled|created)|creation timed out)", rank=Rank.GENERAL),
    rule(RAY, "Waiting for creating a placement group", "No available node types can fulfill", rank=Rank.SYMPTOM, quiet=True, heals=True),
    rule(RAY, "ray.exceptions.", "RayActorError", "ActorDiedError", "The actor died", "The actor is dead", "actor died unexpectedly", pattern=r"ray\.exceptions\.(?!RayTaskError|OutOfMemory)\w+|\b(?:Ray)?Actor(?:Died|Unavailable)?Error\b|[Tt]he actor (?:died|is dead|is temporarily unavailable)|actor died unexpectedly", rank=Rank.SYMPTOM),
    rule(RAY, "SYSTEM_ERROR", "unexpectedly exits with a connection error", "A worker died or was killed", "has been marked dead because", "Raylet is terminated", pattern=r"Worker exit type: SYSTEM_ERROR|unexpectedly exits with a connection error|A worker died or was killed while executing|has been marked dead because|Raylet is terminated", rank=Rank.SYMPTOM, quiet=True),
    rule(RAY, "RayTaskError", "ray::", pattern=r"RayTaskError\(", rank=Rank.DEATH),
    rule(PORT, "ddress already in use", "EADDRINUSE", "Address in use", pattern=r"[Aa]ddress already in use(?!\. Retrying)|EADDRINUSE|Address in use"),
    rule(PORT, "rrno", "ort", pattern=r"\[Errno 98\]|[Pp]ort \d+ is already (?:in use|allocated|being used)", numeric=True),
)  # fmt: skip

_DEBUG = Fix(
    "run again with NCCL's own log, and read the first WARN of each rank",
    "NCCL_DEBUG=INFO vllm serve …",
)
_SHM = Fix("in a container, give shared memory", "docker run --ipc=host …   (or --shm-size=16g)")

FAILURES = (
    Failure(
        slug=TP_GPUS,
        sentence="more GPUs were asked for than there are",
        why="tensor × pipeline parallel size is the number of GPUs one engine takes, and this process (or the Ray cluster) sees fewer.",
        fixes=(
            Fix("see what this process sees", "nvidia-smi -L; echo $CUDA_VISIBLE_DEVICES"),
            Fix("ask for as many as there are", "--tensor-parallel-size N"),
            Fix("in a container, pass the GPUs through", "docker run --gpus all …"),
        ),
        deterministic=True,
        numbers=parallel_numbers.too_few_gpus,
    ),
    Failure(
        slug=TP_HEADS,
        sentence="the model cannot be cut into so many equal parts",
        why="Tensor parallelism divides attention heads, vocabulary and layer widths (and a quantization's groups) among the GPUs; one of them does not divide.",
        fixes=(
            Fix("take a size that divides, usually a smaller power of two", "--tensor-parallel-size N"),
            Fix("use the remaining GPUs for pipeline parallelism", "--pipeline-parallel-size N"),
        ),
        deterministic=True,
        numbers=parallel_numbers.not_dividing,
    ),
    Failure(
        slug=NCCL,
        sentence="the workers could not set up communication between the GPUs (NCCL, Gloo or their rendezvous)",
        why="Usual causes: too little /dev/shm in a container, the wrong network interface between hosts, broken peer-to-peer access, two ranks on one GPU, or no GPU memory left for NCCL.",
        fixes=(_DEBUG, _SHM, Fix("between hosts, name the network interface", "NCCL_SOCKET_IFNAME=eth0 GLOO_SOCKET_IFNAME=eth0"), Fix("try without peer-to-peer access", "NCCL_P2P_DISABLE=1")),
        deterministic=False,
    ),
    Failure(
        slug=NCCL_TIMEOUT,
        sentence="one rank waited for the others until NCCL gave up",
        why="A collective operation did not end in time: another rank crashed, hangs, or the link between them is broken. The rank that did not arrive is the one to look at.",
        fixes=(Fix("look for the rank without this message and its last lines"), Fix("look for GPU errors on all hosts", "dmesg -T | grep -i xid"), _DEBUG, Fix("try without peer-to-peer access", "NCCL_P2P_DISABLE=1")),
        deterministic=False,
    ),
    Failure(
        slug=SHM,
        sentence="a worker has not answered the engine for a minute or more",
        why="The engine waits on the shared-memory queue to its workers. Once is normal during a long compilation or load; repeated while requests wait, a worker is dead or hangs.",
        fixes=(
            Fix("see what the workers do", "py-spy dump --pid PID_OF_WORKER"),
            Fix("look for GPU errors", "dmesg -T | grep -i xid"),
            Fix("if nothing moves, restart the engine"),
        ),
        deterministic=False,
    ),
    Failure(
        slug=RAY,
        sentence="Ray could not start or keep the workers",
        why="The Ray cluster under vLLM failed: a worker process died, a node is missing or differs, or its resources do not suffice.",
        fixes=(Fix("see what the cluster has", "ray status"), Fix("read the dead worker's own log", "ls /tmp/ray/session_latest/logs"), Fix("on a single host, do without Ray", "--distributed-executor-backend mp")),
        deterministic=False,
    ),
    Failure(
        slug=PORT,
        sentence="the port is taken by another process",
        why="vLLM could not bind: another server, or what is left of an earlier vLLM, listens there.",
        fixes=(Fix("see who listens", "ss -ltnp"), Fix("end it, or take another port", "--port 8001")),
        deterministic=False,
        numbers=parallel_numbers.port,
    ),
)  # fmt: skip
