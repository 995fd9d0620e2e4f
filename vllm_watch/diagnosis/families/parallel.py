"""Failures of engines with several GPUs, processes or instances (KV transfer by NIXL, UCX, Mooncake, LMCache).

Sources: vllm/config/parallel.py, vllm/distributed and vllm/v1/executor of vLLM 0.6 to 0.32; NCCL, Gloo and
Ray; flashinfer #2394 (pidfd_getfd); vllm-ascend #1704, #3162, #5135 (HCCL).
"""

import math
import re

from vllm_watch.diagnosis.report import UNKNOWN, Check, Fix
from vllm_watch.diagnosis.rule import (
    WHOLE,
    Facts,
    Failure,
    Rank,
    Told,
    Variant,
    check,
    cure,
    rule,
    when,
)

PARTS_MAX = 16_384
"""Maximum number of GPUs of an engine. Larger numbers come from damaged lines."""

_WORLD = re.compile(rf"World size \(({WHOLE})\) is larger than the number of available GPUs \(({WHOLE})\)")  # fmt: skip
_SIZE = re.compile(rf"[Tt]ensor[ _]parallel[ _]size ?[(=] ?({WHOLE})\)? (?:cannot be .{{0,60}}?GPUs \(?|but only )({WHOLE})")  # fmt: skip
_DIVIDES = re.compile(rf"\(?({WHOLE})\)? (?:must be divisible by tensor parallel size \(|is not divisible by )({WHOLE})")  # fmt: skip
_LOCAL = re.compile(rf"local_world_size \(({WHOLE})\) must be .{{0,60}}visible devices \(({WHOLE})\)")  # fmt: skip
_RANK = re.compile(rf"local rank ({WHOLE}) is out of bounds for ({WHOLE}) devices")
_GROUPS = re.compile(rf"= ({WHOLE}) is not divisible by weight quantization block_[nk] = ({WHOLE})")
_HEADS = re.compile(rf"\(({WHOLE})\) must be divisible by (?:the )?tensor[ -]parallel (?:world )?size \(({WHOLE})")  # fmt: skip
_BUNDLE = re.compile(r"\{'GPU': (\d{1,3}(?:\.\d)?)")
_ADDRESS = re.compile(r"(?:connect to|address of) (?:\[([^\]\s]{1,80})\]:|\(([\w.:-]{1,80}), ?)(\d{1,5})\b")  # fmt: skip
_LAST_ERROR = re.compile(
    r"\bLast error:(?:\n.{0,80}?pid=\d+\))?\s*+(?!(?:ERROR|WARNING|INFO|Traceback|File \"|\(|\^))([^\n]{5,200}[^\n.\s])"
)
_PORT = re.compile(r"(?:'[^']*', |(?:[\d.]{7,15}|\]|(?<!\.p)[a-z*]):)(\d{2,5})\b\)?(?=[)':\]]|: |$)|[Pp]ort:? (\d{2,5})\b")  # fmt: skip


def _too_few_gpus(text: str, facts: Facts) -> Told:
    if found := _RANK.search(text):
        return Told(f"Local rank {found[1]} needs {int(found[1]) + 1} devices, and the process has {found[2]}.")  # fmt: skip
    found = _WORLD.search(text) or _SIZE.search(text) or _LOCAL.search(text)
    if not found:
        return Told()
    wanted, there = found.groups()
    possible = _power_of_two(int(there))
    fix = Fix("if the model fits on fewer GPUs, use no more than are visible", f"--tensor-parallel-size {possible}")  # fmt: skip
    said = f"{wanted} GPUs were requested, {there} are visible."
    alone = found.re is _SIZE or facts.get("pipeline_parallel_size", 1) == 1
    return Told(said, (fix,) if possible and alone else ())


def _not_dividing(text: str, facts: Facts) -> Told:
    if groups := _GROUPS.search(text):
        return _whole_groups(int(groups[1]), int(groups[2]), facts.get("tensor_parallel_size"))
    found = _HEADS.search(text) or _DIVIDES.search(text)
    if not found:
        return Told()
    dimension, parts = (int(each) for each in found.groups())
    if not 0 < parts <= min(dimension, PARTS_MAX):
        return Told(f"{dimension} cannot be split into {parts} parts.")
    said = f"{dimension} is not a multiple of {parts}."
    possible = _power_of_two(math.gcd(dimension, _power_of_two(parts - 1)))
    if facts.get("tensor_parallel_size", parts) != parts or not possible:
        return Told(said)
    return Told(said, (Fix("if the model fits on fewer GPUs, use a size that divides it", f"--tensor-parallel-size {possible}"),))  # fmt: skip


def _whole_groups(part: int, group: int, size: str | float | None) -> Told:
    if not 0 < part <= group * PARTS_MAX or not group:
        return Told()
    less = group // math.gcd(part, group)
    said = f"Each GPU would get {part}, which is not a multiple of {group}"
    if size is None:
        fix = Fix(f"if --tensor-parallel-size is divisible by {less}, divide it by {less}")
        return Told(f"{said}; a tensor parallel size {less} times smaller gives a multiple.", (fix,))  # fmt: skip
    if not isinstance(size, int) or size % less:
        return Told(f"{said}, and no smaller tensor parallel size gives one.")
    return Told(f"{said}.", (Fix("use a size that gives a multiple", f"--tensor-parallel-size {size // less}"),))  # fmt: skip


def _power_of_two(most: int) -> int:
    return 1 << most.bit_length() - 1 if most > 0 else 0


def _rendezvous(text: str, facts: Facts) -> Told:
    found, last = _ADDRESS.search(text), _LAST_ERROR.search(text)
    if last is not None:
        return Told(f"NCCL's own last error: {last[1]}.")
    if found is None:
        return Told()
    host, number = found[1] or found[2], found[3]
    fix = Fix("test the address from the host that reports the error", f"nc -vz {host} {number}")
    return Told(f"The address is {host}, port {number}.", (fix,))


def _ray_status(text: str, facts: Facts) -> Told:
    idle, wanted = facts.get("ray_gpus_idle"), sum(map(float, _BUNDLE.findall(text)))
    if not isinstance(idle, float) or wanted <= idle:
        return Told()
    fix = Check("check that each host is listed, and that Ray lists its GPUs as the resource GPU: if it lists another name (such as TPU), start Ray on that host with the number of GPUs", "ray status -v; ray start --num-gpus=N …")  # fmt: skip
    return Told(f"The engine requests {wanted:g} GPUs, and Ray has registered only {idle:g}.", (fix,))  # fmt: skip


def _port(text: str, facts: Facts) -> Told:
    found = _PORT.search(text)
    if not found:
        return Told()
    number = found[1] or found[2]
    return Told(
        f"Port {number}.", (Check("find the listening process", f"ss -ltnp 'sport = :{number}'"),)
    )


TP_GPUS = "tp_exceeds_gpus"
TP_HEADS = "tp_not_dividing_heads"
NCCL = "nccl_init_failure"
NCCL_TIMEOUT = "nccl_timeout"
SHM = "shm_broadcast_hang"
RAY = "ray_failure"
PORT = "port_in_use"
PTRACE = "ptrace_denied"

KV_TRANSFER = "kv_transfer"

RULES = (
    rule(TP_GPUS, "World size (", pattern=r"World size \(\d+\) is larger than the number of available GPUs"),
    rule(TP_GPUS, "local_world_size (", pattern=r"local_world_size \(\d+\) must be less than or equal to the number of visible devices"),
    rule(TP_GPUS, "VISIBLE_DEVICES:", pattern=r"set ASCEND_RT_VISIBLE_DEVICES:\S{1,80} error, input data rang"),
    rule(TP_GPUS, "number of required", pattern=r"number of required \w+ exceeds the total number of available", quiet=True, rank=Rank.SYMPTOM),
    rule(TP_GPUS, "Current node has no ", pattern=r"Current node has no \w+ available"),
    rule(TP_GPUS, "but only", pattern=r"tensor_parallel_size ?= ?\d+ but only \d+ GPUs? (?:are )?available"),
    rule(TP_GPUS, "less than max local gpu count", "cannot be larger than the number of available GPUs", "hipErrorInvalidDevice"),
    rule(TP_GPUS, "invalid device ordinal", pattern=r"(?<!driver error: )invalid device ordinal"),
    rule(TP_GPUS, "is out of range for", "out of bounds", "assert", pattern=r"--device-ids index \d+ is out of range|DP adjusted local rank \d+ is out of bounds|device >= 0 && device < num_gpus"),
    rule(TP_HEADS, "must be divisible by", pattern=r"(?:heads?|layers|vocab\w{0,20}|size|partitions?)\b.{0,40}must be divisible by (?:the )?(?:tensor|pipeline|tp|TP|`?tensor_parallel|num_gpus|world)"),
    rule(TP_HEADS, "not divisible by", "divisible by tp", pattern=r"(?:AssertionError|ValueError|ShardError|RuntimeError).{0,200}\bis not divisible by (?:weight tile|tp_size|TP|total_num_kv_heads|min_|group_size|weight quantization block|pack_factor)|should be divisible by tp_size"),
    rule(TP_HEADS, "is not aligned with the quantized", pattern=r"(?:in|out)put size is not aligned with the quantized"),
    rule(TP_HEADS, "not divisible by", pattern=r"AssertionError: \d+ is not divisible by \d+(?:\W*$| \[repeated)", rank=Rank.GENERAL),
    rule(NCCL_TIMEOUT, "timeout", pattern=r"Watchdog caught collective operation timeout|collective operation timeout: Work"),
    rule(NCCL_TIMEOUT, "milliseconds before timing out", "Some NCCL operations have failed or timed out", "Heartbeat monitor timed out!", "Timeout at NCCL work", "Timeout waiting for key: default_pg", rank=Rank.GENERAL),
    rule(NCCL_TIMEOUT, "Timed out waiting", "Wait timeout", "wait timeout", pattern=r"[Tt]imed out waiting \d+ ?ms for (?:send|recv) operation|[Ww]ait timeout after \d+ ?ms", rank=Rank.GENERAL),
    rule(NCCL, "ncclUnhandledCudaError", "ncclSystemError", "ncclInternalError", "ncclInvalidUsage", "ncclInvalidArgument", rank=Rank.GENERAL),
    rule(NCCL, "NCCL error", "NCCL Error", "RCCL error", pattern=r"(?:(?:NCCL|RCCL) [eE]rror(?: in)?:? |NCCL error in:|NCCL Error \d)(?!.{0,300}remote process exited)", rank=Rank.GENERAL, header=True),
    rule(NCCL, "HIP failure '", "Cuda failure", pattern=r"(?:HIP|Cuda) failure (?:\d+ )?'(?!out of memory)"),
    rule(NCCL, "ncclCommInitRank", "ncclGetUniqueId", "ncclCommInitRankConfig", pattern=r"nccl(?:CommInitRank|CommInitRankConfig|GetUniqueId)\b.{0,800}(?:fail|error)", rank=Rank.GENERAL),
    rule(NCCL, "EI00", "EJ00", "ERR02200", "HCCL", "hccl", pattern=r"\bE[IJ]00\d\d\b|ERR02200|[Hh][Cc][Cc][Ll](?: \w{1,20}){0,3} (?:error|failed)|call hccl api failed", rank=Rank.GENERAL),
    rule(NCCL, "oneCCL", "zeMemOpenIpcHandle", "ccl::", pattern=r"oneCCL: .{0,200}(?:EXCEPTION|rror)|zeMem\w{1,20}IpcHandle|ccl::v1::exception"),
    rule(NCCL, "nvshmem", "NVSHMEM", "/transport/ib", "DeepEP error", "deep_ep.cpp", pattern=r"(?:nvshmem|NVSHMEM).{0,200}(?:[Ff]ailed|[Ee]rror|non-zero status|NULL value)|/transport/ib\w{1,20}/\w{1,40}\.cpp.{0,80}(?:[Ff]ailed|[Ee]rror|non-zero|NULL)|DeepEP error|(?:CUDA error|Failed).{0,80}deep_ep\.cpp", rank=Rank.GENERAL),
    rule(NCCL, "shared memory segment /dev/shm/nccl", "shmOpen", "shm_open", pattern=r"Error while (?:creating|attaching to) shared memory segment /dev/shm/nccl|(?:shmOpen|shm_open).{0,80}(?:failed|[Ee]rror)"),
    rule(NCCL, "Duplicate GPU detected", "DistBackendError", "Bootstrap : no socket interface found", "No socket interface found", pattern=r"Duplicate GPU detected|DistBackendError(?!.{0,300}remote process exited)|[Nn]o socket interface found", rank=Rank.GENERAL, header=True),
    rule(NCCL, "custom_all_reduce.cuh", pattern=r"(?:Cuda error|Failed:) \S{0,200}custom_all_reduce\.cuh:\d+", quiet=True),
    rule(NCCL, "ibv_", pattern=r"\b(?:NCCL WARN .{0,200}|[Cc]all to )\bibv_\w{1,40} failed", rank=Rank.GENERAL),
    rule(NCCL, "async fatal event", pattern=r"NCCL WARN NET/IB : \S{1,60} async fatal event", rank=Rank.GENERAL),
    rule(NCCL, "Got async error event", pattern=r"NET/IB : \S{1,60} Got async error event: port error", rank=Rank.GENERAL, heals=True, needs=when(r"(?:Error|Exception)\b|ERROR|hit an exception")),
    rule(NCCL, "NCCL WARN", pattern=r"NCCL WARN .{0,800}(?:Got completion .{0,80}status=(?:\d|IBV_WC_(?!SUCCESS))|[Ff]ail(?:ed|ure)|[Ee]rror|out of memory|[Tt]imeout|No route|refused)", rank=Rank.SYMPTOM),
    rule(NCCL, "connectFullMesh", "DistStoreError", "DistNetworkError", "RendezvousConnectionError", "waiting for clients", pattern=r"Gloo connectFullMesh failed|DistStoreError|DistNetworkError: (?!.{0,800}(?:EADDRINUSE|Broken pipe|got 0 bytes|reset by peer))|RendezvousConnectionError|waiting for clients\. \d+/\d+ clients joined", rank=Rank.GENERAL),
    rule(NCCL, "ncclRemoteError", "remote process exited", "Connection closed by peer", "reset by peer", "got 0 bytes", "Broken pipe", "TCPStore server has shut down", pattern=r"ncclRemoteError|TCPStore server has shut down|remote process exited|(?:gloo|TCPStore|DistNetworkError).{0,800}(?:Connection closed by peer|reset by peer|got 0 bytes|Broken pipe)", rank=Rank.SYMPTOM),
    rule(PTRACE, "pidfd_getfd", "pidfd_open", "ptrace", pattern=r"pidfd_(?:getfd|open)\b.{0,200}(?:not permitted|[Dd]enied|failed)|ptrace.{0,80}(?:not permitted|[Dd]enied)"),
    rule(UNKNOWN, "OCI runtime create failed", "executable file not found in $PATH", rank=Rank.GENERAL, header=True),
    rule(NCCL, "client socket has timed out", "client socket has failed to connect", rank=Rank.GENERAL),
    rule(SHM, "No available", pattern=r"No available (?:shared memory broadcast )?block found in \d+ ?(?:second|s\b)", rank=Rank.SYMPTOM, quiet=True, heals=True),
    rule(SHM, "RPC call to", pattern=r"RPC call to \w+ timed out", rank=Rank.SYMPTOM),
    rule(RAY, "aylet", pattern=r"Unable to register worker with raylet|Failed to register worker .{0,800}[Rr]aylet|Failed to connect to (?:the )?[Rr]aylet|[Rr]aylet.{0,40}(?:died|has failed|is dead|exited)"),
    rule(RAY, "does not allocate any GPUs on the driver node"),
    rule(RAY, "file_system_monitor", pattern=r"file_system_monitor.{0,400}available space: 0\b(?!\.)", rank=Rank.GENERAL, quiet=True, numeric=True),
    rule(UNKNOWN, "Object creation will fail", rank=Rank.SYMPTOM, quiet=True),
    rule(RAY, "KeyError: 'bundles'", rank=Rank.GENERAL),
    rule(RAY, "Could not find any running Ray instance", "node_ip_address.json", "Can't find a `node_ip_address", "Version mismatch: The cluster was started with", "Failed to connect to GCS", "Every node should have a unique IP", "Ray cluster does not have enough resources", "Failed to start the dashboard", "This node has an IP address of", "Ran into exception when trying to connect to Ray", "ray.init() has not been called", "Unable to connect to GCS", rank=Rank.GENERAL),
    rule(RAY, "lacement group", pattern=r"(?:Cannot|Unable to) (?:provide|create|schedule) (?:a )?placement group|[Pp]lacement group.{0,80}(?:not ready|timed out|infeasible|cannot be (?:scheduled|created)|creation timed out)", rank=Rank.GENERAL),
    rule(RAY, "have not registered within the timeout", "Waiting for creating a placement group", "No available node types can fulfill", rank=Rank.SYMPTOM, quiet=True, heals=True),
    rule(RAY, "ray.exceptions.", "RayActorError", "ActorDiedError", "The actor died", "The actor is dead", "actor died unexpectedly", pattern=r"ray\.exceptions\.(?!RayTaskError|OutOfMemory)\w+|\b(?:Ray)?Actor(?:Died|Unavailable)?Error\b|[Tt]he actor (?:died|is dead|is temporarily unavailable)|actor died unexpectedly", rank=Rank.SYMPTOM),
    rule(RAY, "SYSTEM_ERROR", "unexpectedly exits with a connection error", "A worker died or was killed", "has been marked dead because", "Raylet is terminated", pattern=r"Worker exit type: SYSTEM_ERROR|unexpectedly exits with a connection error|A worker died or was killed while executing|has been marked dead because|Raylet is terminated", rank=Rank.SYMPTOM, quiet=True),
    rule(RAY, "RayTaskError", "ray::", pattern=r"RayTaskError\(", rank=Rank.DEATH),
    rule(PORT, "ddress already in use", "EADDRINUSE", "Address in use", pattern=r"[Aa]ddress already in use(?!\. Retrying)|EADDRINUSE|Address in use"),
    rule(PORT, "rrno", "ort", pattern=r"\[Errno 98\]|[Pp]ort (?:\d+ )?is already (?:in use|allocated|being used)", numeric=True),
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

_OTHER_PORT = r"zmq|ZMQ|NIXL|nixl|side.channel|EADDRINUSE|TCPStore|server socket has failed to listen|master.port|rpc.port|ompi|mooncake"
_ASCEND = r"HCCL|hccl|\bE[IJ]00\d\d|ERR02200|\bNPU|(?:\b|_)npu(?:\b|_)"
_XPU = r"oneCCL|zeMem\w{1,20}IpcHandle|ccl::v1|ZE_RESULT|XPU|xccl"
_ONE_GPU = r"tensor_parallel_size\W{1,4}1\b"
_RENDEZVOUS = r"client socket (?:has|cannot)|waiting for clients|RendezvousConnectionError"
_DEBUG = check("run again with NCCL logging, and read the first WARN of each rank", "NCCL_DEBUG=INFO vllm serve …", when(seen=r"NCCL|nccl", lacks=rf"{_ASCEND}|{_XPU}", facts=("!nccl_debug",)))  # fmt: skip

FAILURES = (
    Failure(
        slug=TP_GPUS,
        sentence="more GPUs were requested than this process sees",
        why="tensor × pipeline parallel size is the number of GPUs that one engine needs, and this process (or the Ray cluster) sees fewer.",
        cures=(
            check("list the GPUs that this process sees", "nvidia-smi -L; echo $CUDA_VISIBLE_DEVICES", when(lacks=rf"hipError|HIP|{_ASCEND}")),
            check("list the NPUs that this process sees", "npu-smi info; echo $ASCEND_RT_VISIBLE_DEVICES", when(seen=_ASCEND)),
            cure("in a container, pass the GPUs through", "docker run --gpus all …", when(r"\(0\)|no GPU available|only 0 GPU", lacks=rf"hipError|HIP|{_ASCEND}")),
            check("with Ray, list the cluster's GPUs", "ray status", when(seen=r"[Rr]ay|placement group")),
        ),
        deterministic=True,
        variants=(
            Variant(
                when=when(r"Current node has no \w+ available"), sentence="Ray has no free GPU (or NPU) for this engine on this node",
                why="The line lists the free resources of the node.",
                cures=(check("list the cluster's GPUs, and the actors and placement groups that hold them", "ray status; ray list placement-groups; ray list actors"),),
                deterministic=False,
            ),
            Variant(
                when=when(r"placement group"), sentence="more GPUs (or NPUs) were requested than Ray has for this engine",
                why="Only nodes that have joined the cluster count. If vLLM finds no cluster, it starts one on this host alone (\"Started a local Ray instance\").",
                cures=(check("list the cluster's nodes and their devices", "ray status; ray list nodes"), cure("if a node is missing, join it to the cluster first, and point vLLM at the cluster", "ray start --address=HEAD:PORT; export RAY_ADDRESS=HEAD:PORT", when(r"placement group"))),
            ),
            Variant(
                when=when(r"visible devices \(0\)"), sentence="this process sees no GPU (or NPU) at all",
                why="No tensor parallel size helps. Check the driver, the devices of the container, and the variables that hide devices.",
                deterministic=False,
                cures=(check("list the devices that this process sees", "nvidia-smi -L || npu-smi info || rocm-smi; env | grep VISIBLE_DEVICES"),),
            ),
            Variant(
                when=when(r"ASCEND_RT_VISIBLE_DEVICES"), sentence="ASCEND_RT_VISIBLE_DEVICES names an NPU that this process does not have",
                why="A container numbers its own NPUs from 0, regardless of their numbers on the host; the line gives the range.",
                cures=(check("list the NPUs of this container", "npu-smi info; ls /dev/davinci*"), cure("use numbers within the range, or unset it", "unset ASCEND_RT_VISIBLE_DEVICES", when(r"input data rang"))),
            ),
            Variant(
                when=when(r"local rank \d+ is out of bounds"), sentence="a worker's local rank is too high for the number of devices in its process",
                why="Each worker of an engine takes one device.",
                cures=(check("compare the parallel size of the failed stage with its own device list (stages of one server may need different sizes)", None, when(seen=r"(?i)stage_?(?:engine|\d)|vllm_omni")), check("compare the number of devices with the local parallel size (tensor × pipeline × data, on this host)"), check("if this host should have more devices, list those that the process sees", "nvidia-smi -L; echo $CUDA_VISIBLE_DEVICES", when(lacks=rf"(?i:stage_?(?:engine|\d)|vllm_omni)|hipError|HIP|{_ASCEND}"))),
            ),
            Variant(
                when=when(r"invalid device ordinal|hipErrorInvalidDevice|out of range for|device >= 0"), sentence="the GPU runtime rejected a device index", confidence=0.6,
                cures=(check("list the GPUs that this process sees", "nvidia-smi -L; echo $CUDA_VISIBLE_DEVICES", when(lacks=r"hipError|HIP")), check("list the GPUs that this process sees", "rocm-smi; env | grep VISIBLE_DEVICES", when(seen=r"hipError|HIP"))),
            ),
        ),
        numbers=_too_few_gpus,
    ),
    Failure(
        slug=TP_HEADS,
        sentence="a size of the model cannot be divided evenly, as parallelism over GPUs requires",
        why="",
        cures=(cure("use the remaining GPUs for pipeline parallelism", "--pipeline-parallel-size N", when(r"heads.{0,60}tensor")),),
        deterministic=True,
        variants=(
            Variant(
                when=when(r"pipeline"), sentence="the model's layers cannot be divided among this number of pipeline stages",
                cures=(cure("use a number of stages that divides them, or set the split manually", "VLLM_PP_LAYER_PARTITION=…", when(r"pipeline")),),
            ),
            Variant(
                when=when(r"(?:min_|group_size|block|tile|pack_factor|partition|aligned with the quantized)"), sentence="a size of a quantized layer, on each GPU, is not a multiple of the group or block that its kernel needs",
                cures=(cure("keep each expert whole: distribute the experts over the GPUs instead of splitting them", "--enable-expert-parallel", when(r"(?i)gate's and up's|down's weight|moe|expert", lacks=_ONE_GPU)), cure("use a smaller tensor parallel size", None, when(r"divisible by (?!weight quantization block)|aligned with the quantized", lacks=_ONE_GPU)), cure("or use an unquantized or differently quantized checkpoint", None, when(r"divisible by|aligned with the quantized"))),
            ),
        ),
        numbers=_not_dividing,
    ),
    Failure(
        slug=NCCL,
        sentence="the workers could not set up (or lost) communication between the GPUs",
        why="With several ranks, the one that reports it may not be the one that failed: read the first error of every rank.",
        cures=(
            _DEBUG,
            cure("in a container, provide more shared memory", "docker run --ipc=host …   (or --shm-size=16g)", when(r"[/]dev/shm|shared memory segment|Bus error")),
            cure("with several hosts, set the network interface that connects them, on each host by its name there", "ip -br addr; export NCCL_SOCKET_IFNAME=NAME GLOO_SOCKET_IFNAME=NAME", when(r"(?<!e\.g\. )[Ss]ocket|connectFullMesh|No route|refused|interface|clients joined|waiting for clients|timed out")),
            check("check the interface name in these variables: if no interface has that name, NCCL finds none", "env | grep SOCKET_IFNAME; ip -br addr", when(r"[Nn]o socket interface")),
        ),
        deterministic=False,
        variants=(
            Variant(
                when=when(r"Cuda failure (?:\d+ )?'operation not supported'"), sentence="NCCL called a CUDA function that the driver does not support here",
                cures=(check("check whether the GPU is virtual; if so, enable unified memory for it on the host, or pass the whole GPU through", "nvidia-smi -q | grep -i -A2 virtualization"), check("test whether one GPU alone works", "--tensor-parallel-size 1", when(r"operation not supported"))),
            ),
            Variant(
                when=when(r"Cuda failure (?:\d+ )?'(?:an illegal memory access|an illegal instruction|unspecified launch|device-side assert|misaligned|uncorrectable)"), sentence="this NCCL call reports an error of the GPU: a kernel failed, or the GPU itself",
                cures=(check("check whether a GPU reported an error", "dmesg -T | grep -i -E 'xid|nvrm'"), check("find the kernel that failed first", "CUDA_LAUNCH_BLOCKING=1 vllm serve …", when(r"Cuda failure", lacks="uncorrectable"))),
            ),
            Variant(
                when=when(seen=r"\bnvls\.cc:\d+ (?:\(\w+\) )?NCCL WARN"), sentence="NCCL could not set up NVLink SHARP (NVLS), the reduction of several GPUs' data in NVSwitch",
                why="It needs NVSwitch with a running fabric manager. NCCL works without it.",
                cures=(check("check the fabric's state", "nvidia-smi -q | grep -A3 Fabric; systemctl status nvidia-fabricmanager"), cure("disable NVLS", "NCCL_NVLS_ENABLE=0", when(seen=r"nvls"))),
            ),
            Variant(
                when=when(r"Duplicate GPU detected"), sentence="two ranks use the same GPU, and NCCL needs one GPU per rank",
                cures=(check("check which GPUs each process gets, and how many there are", "nvidia-smi -L; echo $CUDA_VISIBLE_DEVICES"), cure("give each rank its own GPU", None, when(r"Duplicate GPU"))),
            ),
            Variant(
                when=when(r"peer access is not supported"), sentence="the GPUs cannot access each other's memory directly (P2P), and a call requested it",
                cures=(check("check which GPUs support P2P", "nvidia-smi topo -p2p r; nvidia-smi topo -m"), cure("disable P2P", "NCCL_P2P_DISABLE=1 vllm serve … --disable-custom-all-reduce", when(r"peer access"))),
            ),
            Variant(
                when=when(r"[Ww]ait timeout after \d+ ?ms"), sentence="a rank timed out waiting for a value that another rank should have stored",
                cures=(check("read the last lines and the first error of every other rank, on every host"), check("dump the stack of a rank that still runs", "py-spy dump --pid PID_OF_WORKER")),
            ),
            Variant(
                when=when(r"Cuda failure (?:2 )?'out of memory'"), sentence="no GPU memory was left for NCCL's own buffers",
                why="NCCL allocates them outside PyTorch, often only when ranks exchange data for the first time.",
                cures=(cure("leave more memory free for NCCL: lower --gpu-memory-utilization by 0.05"), check("check whether another process holds memory on this GPU", "nvidia-smi"), cure("if EPLB rebalances experts, use fewer redundant experts, or remove --enable-eplb", None, when(seen=r"(?i)eplb"))),
            ),
            Variant(
                when=when(_RENDEZVOUS), sentence="a process could not connect to the rendezvous address of the ranks, or not all of them did in time",
                cures=(check("read the log of the first rank: if it exited, its error is the cause"), cure("with several hosts, set VLLM_HOST_IP on each host to its address on the network that connects them", "ip -br addr; export VLLM_HOST_IP=IP GLOO_SOCKET_IFNAME=NAME NCCL_SOCKET_IFNAME=NAME", when(_RENDEZVOUS))),
            ),
            Variant(
                when=when(r"custom_all_reduce\.cuh"), sentence="vLLM's own all-reduce, which accesses the memory of other GPUs directly, failed",
                cures=(cure("use NCCL's all-reduce instead", "--disable-custom-all-reduce", when(r"custom_all_reduce\.cuh:\d+ (?!'(?:an illegal|unspecified|out of memory))")),),
            ),
            Variant(
                when=when(r"shared memory segment|shmOpen|shm_open"),
                sentence="a process could not create or open shared memory (in /dev/shm) for communication between the ranks",
                why="Docker gives a container 64 MiB of it by default.",
                cures=(check("check its size and use from inside the container", "df -h /dev/shm"), cure("if it is too small, give the container more shared memory (Kubernetes: an emptyDir with medium Memory at /dev/shm)", "docker run --ipc=host …   (or --shm-size=16g)", when(r"shared memory segment|shm_?[Oo]pen"))),
            ),
            Variant(
                when=when(r"ibv_.{0,100}Cannot allocate memory"),
                sentence="an RDMA call of NCCL could not get the memory that it requested",
                cures=(check("check NCCL's settings and the locked-memory limit from inside the container", "env | grep NCCL_; ulimit -l"), cure("if NCCL_BUFFSIZE is set, unset it", "unset NCCL_BUFFSIZE", when(r"ibv_reg")), cure("if the limit is not `unlimited`, raise it (Kubernetes: the IPC_LOCK capability)", "docker run --ulimit memlock=-1 --cap-add=IPC_LOCK …", when(r"ibv_"))),
            ),
            Variant(
                when=when(r"NET/IB : \S{1,60} (?:Got )?async "),
                sentence="an RDMA device (InfiniBand, RoCE) reported an error while NCCL used it",
                why="The line names the device and port. Later failures may be a consequence.",
                cures=(check("check the link, its error counters and the kernel log", "ibstat; perfquery; dmesg -T | grep -i -E 'mlx5|link'"), cure("exclude this device until it is repaired", "NCCL_IB_HCA=^DEVICE", when(r"port error"))),
            ),
            Variant(
                when=when(r"connectFullMesh[\s\S]{0,400}remote=\[(?:127\.|::1)"),
                sentence="a rank tried to reach another rank at the loopback address (127.0.0.1), which never leaves its own host",
                why="With several hosts, Gloo uses that address if the host name resolves to loopback, or does not resolve.",
                cures=(check("check, on each host, the address that its own name resolves to", "getent hosts $(hostname); ip -br addr"), cure("with several hosts, set the network interface that connects them, on each host by its name there", "GLOO_SOCKET_IFNAME=NAME NCCL_SOCKET_IFNAME=NAME", when(r"connectFullMesh"))),
            ),
            Variant(
                when=when(r"^[^\n]*\b[Gg]loo\b"),
                sentence="a process could not connect to another, or lost the connection (Gloo, which connects processes over TCP)",
                cures=(check("read the first error of the other ranks, on every host"), cure("with several hosts, set the network interface that connects them, on each host by its name there", "ip -br addr; export GLOO_SOCKET_IFNAME=NAME NCCL_SOCKET_IFNAME=NAME", when(r"[Gg]loo"))),
            ),
            Variant(
                when=when(r"ibv_(?:open_device|get_device_list|query_\w{1,20}|alloc_pd|reg_\w{1,20}|create_\w{1,20})\b"),
                sentence="NCCL could not use an RDMA device of this host (InfiniBand, RoCE)",
                cures=(check("check the devices and the locked-memory limit from inside the container", "ls -l /dev/infiniband; ibv_devices; ulimit -l; lsmod | grep peermem"), check("test whether it works without RDMA (much slower between hosts)", "NCCL_IB_DISABLE=1", when(r"ibv_"))),
            ),
            Variant(
                when=when(r"(?:^|NCCL WARN )[^\n]*(?:NET/IB|ibv_|libibverbs|Got completion)"),
                sentence="a call or a transfer of the RDMA network (InfiniBand, RoCE) failed in NCCL",
                cures=(check("check the links, and which device and GID each host uses", "ibstat; show_gids; env | grep NCCL_IB"), check("test whether it works without RDMA (much slower)", "NCCL_IB_DISABLE=1", when(r"NET/IB|ibv_|ibverbs"))),
            ),
            Variant(
                when=when(r"^[^\n]*(?:remote process exited|ncclRemoteError|TCPStore server has shut down|TCPStore.{0,400}Broken pipe|(?:closed|reset) by peer|got 0 bytes)", lacks=_ASCEND),
                sentence="the connection to another rank, or to the store of the ranks, ended",
                cures=(check("read the first error of the other ranks, on every host"), check("check whether a rank was killed, or a GPU reported an error", "dmesg -T | grep -i -E 'killed process|xid|segfault'"), cure("if all ranks still run, test the network between the hosts, with NCCL logging", "NCCL_DEBUG=INFO vllm serve …", when(r"remote|TCPStore|peer|got 0"))),
            ),
            Variant(
                when=when(r"(?i)nvshmem|/transport/ib|DeepEP|deep_ep"),
                sentence="the exchange between experts on different GPUs (DeepEP, NVSHMEM) could not be set up, or failed",
                cures=(check("check the RDMA devices and the locked-memory limit from inside the container", "ls /dev/infiniband; ibv_devices; ulimit -l; lsmod | grep -i -E 'peermem|gdrdrv'"), check("test another all-to-all backend", "--all2all-backend allgather_reducescatter", when(r"(?i)nvshmem|/transport/ib|DeepEP|deep_ep"))),
            ),
            Variant(
                when=when(r"^[^\n]{0,300}(?:oneCCL|ccl::)[^\n]{0,300}No such file or directory"),
                sentence="oneCCL, which connects Intel GPUs, could not open a file or directory: it does not exist here",
                cures=(check("check the files from inside the container", "ls -l /dev/dri /dev/dri/by-path"), cure("if a container lacks /dev/dri/by-path, mount it", "docker run --device /dev/dri -v /dev/dri/by-path:/dev/dri/by-path …", when(r"device"))),
            ),
            Variant(
                when=when(r"^[^\n]{0,300}(?i:ccl)[^\n]{0,300}(?:start_workers|failed to start worker)"),
                sentence="oneCCL, which connects Intel GPUs, could not start its worker threads",
                cures=(check("check the CPU affinity and limits of this process", "taskset -pc $$; ulimit -u; env | grep -E '^CCL_|^I_MPI_'"),),
            ),
            Variant(
                when=when(r"zeMem\w{1,20}IpcHandle"),
                sentence="oneCCL could not share memory between the Intel GPUs",
                cures=(check("list the GPUs and the versions of the driver and compute runtime", "clinfo -l; dpkg -l | grep -i -E 'level-zero|intel-opencl|libze'"), check("test whether another mechanism to exchange memory handles works", "CCL_ZE_IPC_EXCHANGE=sockets   (or pidfd, drmfd)", when(r"IpcHandle")), check("test whether one GPU alone works", "--tensor-parallel-size 1", when(_XPU))),
            ),
            Variant(
                when=when(r"oneCCL|ccl::v1|ZE_RESULT"),
                sentence="oneCCL, which connects Intel GPUs, failed",
                cures=(check("run again with oneCCL logging", "CCL_LOG_LEVEL=info vllm serve …", when(_XPU)), check("test whether one GPU alone works", "--tensor-parallel-size 1", when(_XPU))),
            ),
            Variant(
                when=when(r"HcclGetRootInfo|hccl|HCCL|EJ0003", seen=r"EJ0003|Failed to bind the IP port|bound already|nic listen start failed"),
                sentence="HCCL could not listen on its port: the port is already in use",
                why="HCCL uses ports of the host from 60000 on, and ports of the NPU; its plog has the number. Two jobs on one host need separate port ranges.",
                cures=(check("find the process that listens there, and read CANN's own log", "ss -ltnp | grep ':60[0-9][0-9][0-9]'; ls -t ~/ascend/log/debug/plog | head"), cure("give this job its own port range", "HCCL_IF_BASE_PORT=61000", when(seen=r"EJ0003|bind the IP port|bound already"))),
            ),
            Variant(
                when=when(_ASCEND),
                sentence="HCCL could not set up (or lost) communication between the NPUs",
                cures=(check("read the lines after the code (Reason, Solution), on every rank", "ls -t ~/ascend/log/debug/plog | head"), check("check the NPUs' links and health", "hccn_tool -i 0 -link -g; npu-smi info"), cure("if the other ranks only start later, let ranks wait longer for each other", "HCCL_CONNECT_TIMEOUT=1800", when(r"EI0006"))),
            ),
        ),
        numbers=_rendezvous,
    ),
    Failure(
        slug=NCCL_TIMEOUT,
        sentence="an operation between the ranks did not complete before its timeout, or failed",
        why="",
        cures=(check("read the first error of each rank, and the last lines of a rank that lacks this message"), check("check on all hosts whether a GPU reported an error", "dmesg -T | grep -i xid", when(lacks=_ASCEND)), _DEBUG),
        deterministic=False,
        variants=(
            Variant(
                when=when(r"Heartbeat monitor timed out"), sentence="NCCL's watchdog in this process made no progress until its heartbeat timed out",
                cures=(check("check on all hosts whether a GPU reported an error", "dmesg -T | grep -i -E 'xid|amdgpu'"), check("read the first error of every rank; if it happens again, dump the ranks' stacks before the watchdog aborts them", "py-spy dump --pid PID_OF_WORKER")),
            ),
            Variant(
                when=when(r"(?:[Tt]imed out waiting|[Tt]ime out) \d+ ?ms for (?:send|recv)"), sentence="one rank timed out waiting for another (Gloo, which connects processes over TCP)",
                cures=(check("read the last lines and the first error of the other ranks, on every host"), check("check whether requests were running in that time; if not, the other rank may have had nothing to send: search vLLM's issues for the message and this release")),
            ),
        ),
    ),
    Failure(
        slug=SHM,
        sentence="a process of the engine has waited a minute or more for another one",
        why="They exchange messages through a queue in shared memory. One such message is normal during a long compilation or load.",
        cures=(
            check("dump the workers' stacks", "py-spy dump --pid PID_OF_WORKER"),
            check("check whether a GPU reported an error", "dmesg -T | grep -i xid", when(lacks=_ASCEND, facts=("!device",))),
            cure("if no tokens come for minutes while requests run, restart the engine", None, when(serving=True)),
            check("test whether it works without FlashInfer's fused all-reduce, whose workspace could not be set up", "--compilation-config '{\"pass_config\": {\"fuse_allreduce_rms\": false}}'", when(seen=r"FlashInfer All Reduce workspace")),
        ),
        deterministic=False,
        variants=(
            Variant(
                when=when(r"RPC call to \w+ timed out"),
                sentence="a worker did not answer an RPC from the engine in time, and the engine gave up",
                cures=(check("read the last lines of the workers, and dump their stacks if they still run", "py-spy dump --pid PID_OF_WORKER"), check("check whether a GPU reported an error", "dmesg -T | grep -i xid", when(lacks=_ASCEND, facts=("!device",))), check("test whether the workers answer smaller steps", "--max-num-seqs 8   (or a smaller --max-num-batched-tokens)", when(r"execute_model|sample_tokens")), cure("if it is only slow, raise the timeout", "VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS=SECONDS", when(r"execute_model|sample_tokens"))),
            ),
        ),
    ),
    Failure(
        slug=RAY,
        sentence="Ray reported a failure of its cluster, or of a process that it runs",
        why="",
        cures=(
            check("check the cluster's resources", "ray status"),
            check("read the dead worker's own log", "ls /tmp/ray/session_latest/logs", when(r"[Aa]ctor|died|SYSTEM_ERROR|raylet|Raylet|dead")),
            cure("on a single host, start the workers without Ray", "--distributed-executor-backend mp", when(r"running Ray instance|node_ip_address|driver node|Failed to connect to (?:GCS|the Raylet)|raylet", seen=r"vllm serve|api_server|APIServer")),
            cure("install the same Ray and Python on every node", "ray --version", when(r"Version mismatch")),
        ),
        deterministic=False,
        variants=(
            Variant(when=when(r"available space: 0"), sentence="a file system that Ray uses is full, so Ray may fail", cures=(check("check how full it is, then free space there, or give Ray another directory", "df -h /tmp; ray start --temp-dir DIR"),)),
            Variant(
                when=when(r"ChannelTimeoutError|available to read", lacks=r"(?i:worker|actor|node|raylet)\b[^\n]{0,60}\b(?:died|dead|killed)\b|ActorDied|SYSTEM_ERROR"),
                sentence="a result did not arrive within the time that Ray waits for it",
                why="A timeout is not a death: no line of this log shows that a worker ended.",
                cures=(check("compare the time that passed with the limit that vLLM printed (ray_timeout_s in the facts): if less time passed, Ray uses another limit, by default 10 seconds", None, when(facts=("ray_timeout_s",))), cure("if a step takes that long, set the limit on every node, before Ray and vLLM start", "export RAY_CGRAPH_get_timeout=300", when(r"ChannelTimeout|available to read")), check("otherwise dump the workers' stacks", "py-spy dump --pid PID_OF_WORKER")),
            ),
            Variant(
                when=when(r"not valid across Ray sessions"), sentence="a process used a Ray actor of an earlier Ray session",
                cures=(check("check the log for an earlier error: it is the cause if there is one"), check("if there is none, compare the installed Ray with the version that this vLLM was tested with (see the requirements directory of its repository)", "python -m pip show ray vllm"), cure("or, on a single host, start the workers without Ray", "--distributed-executor-backend mp", when(r"Ray session", seen=r"vllm serve|api_server|APIServer"))),
            ),
            Variant(
                when=when(r"Every node should have a unique IP"), sentence="two nodes of the Ray cluster have the same address for vLLM",
                cures=(check("list the nodes, and check the variable on each of them", "ray list nodes; env | grep VLLM_HOST_IP; ip -br addr"), cure("set it on each node to that node's own address, before Ray starts there", "export VLLM_HOST_IP=IP", when(r"unique IP"))),
            ),
            Variant(
                when=when(r"Could not find any running Ray instance|(?:connect to|reach) GCS|node_ip_address"), sentence="this process could not find or reach a Ray cluster",
                cures=(check("check whether Ray runs here, and which address is set", "ray status; echo $RAY_ADDRESS"), cure("on a single host, start the workers without Ray", "--distributed-executor-backend mp", when(r"Ray|GCS|node_ip")), cure("with several hosts, start Ray on the head node and join each host before vLLM starts", "ray start --head; ray start --address=HEAD:6379", when(r"Ray|GCS|node_ip"))),
            ),
            Variant(
                when=when(r"No available node types.{0,80}'node:\d"),
                sentence="Ray has no node with the address that vLLM requests, or that node has too few free resources",
                why="vLLM requests its own node by address: on hosts with several networks, VLLM_HOST_IP and the address with which Ray was started must be the same.",
                cures=(check("compare the addresses of Ray's nodes with the one in the line", "ray status; ray list nodes"), cure("if they differ, start Ray and vLLM with the same address, on every node", "VLLM_HOST_IP=IP ray start --node-ip-address=IP …", when(r"'node:\d"))),
            ),
            Variant(
                when=when(r"Waiting for creating a placement group.{0,800}'GPU'", facts=("ray_gpus_idle",)), sentence="Ray waits for GPUs, although its status in this log shows that none is in use",
                why="No other job holds them.",
                cures=(check("check the resources of each node", "ray list nodes"),),
            ),
            Variant(
                when=when(r"Waiting for creating a placement group|No available node types|(?:Cannot|Unable to) (?:provide|create|schedule) (?:a )?placement group|lacement group.{0,80}(?:not ready|timed out|infeasible|cannot be|creation timed out)"),
                sentence="Ray has not provided the resources that the engine requests (GPUs, a node)",
                cures=(check("check the cluster's resources and their holders", "ray status; ray list nodes; ray list placement-groups"),),
            ),
        ),
        numbers=_ray_status,
    ),
    Failure(
        slug=PORT,
        sentence="the address or port is already in use",
        why="",
        cures=(check("find the process that listens", "ss -ltnp"), cure("if it is a leftover of an earlier server, stop it; otherwise serve on another port", "--port N", when(r"rrno 98|attempting to bind", lacks=_OTHER_PORT)), cure("if it is not the API port, change the matching one: NIXL's side channel, the data parallel RPC and torch's rendezvous have their own ports", "VLLM_NIXL_SIDE_CHANNEL_PORT=N   (or --data-parallel-rpc-port N, --master-port N)", when(seen=_OTHER_PORT))),
        deterministic=False,
        variants=(
            Variant(
                when=when(frames=r"torch/distributed/elastic/"),
                sentence="the rendezvous port of torchrun is already in use",
                why="It is not a port of vLLM: each torchrun on a host needs its own (29500 by default).",
                cures=(check("find the process that listens", "ss -ltnp"), cure("give this job its own port", "torchrun --master-port N …", when(r"in use|EADDRINUSE"))),
            ),
            Variant(
                when=when(frames=r"/device_communicators/shm_broadcast\.py |/v1/engine/core_client\.py "), sentence="a port that the processes of vLLM use among themselves is already in use",
                why="It is not the API port. With VLLM_PORT, all of them count up from one number.",
                cures=(check("check the variable on the host of this address; if it is set, unset it, or use a number far from that of any other engine on this host", "env | grep VLLM_PORT"),),
            ),
            Variant(
                when=when(seen=r"get_open_port|bind\(\(\S{0,20}, 0\)\)"),
                sentence="vLLM requested any free port, and none was left",
                why="This is not the API port.",
                cures=(check("check how many are in use, and the range", "ss -s; sysctl net.ipv4.ip_local_port_range", when(seen=r"get_open_port|bind")),),
            ),
        ),
        numbers=_port,
    ),
    Failure(
        slug=PTRACE,
        sentence="one process could not access another through the kernel (pidfd_getfd or ptrace)",
        why="pidfd_getfd needs ptrace permission, which a container or Yama may deny.",
        cures=(
            cure("in a container, allow it", "docker run --cap-add=SYS_PTRACE …", when(r"not permitted|[Dd]enied")),
            check("check Yama's setting on the host (0 allows it)", "cat /proc/sys/kernel/yama/ptrace_scope"),
            check("check whether PYTORCH_CUDA_ALLOC_CONF sets expandable_segments; without it, workers do not take handles", "echo $PYTORCH_CUDA_ALLOC_CONF"),
        ),
        deterministic=True,
    ),
    Failure(
        slug=KV_TRANSFER,
        sentence="KV transfer, or an external KV cache, failed or could not start (NIXL, UCX, Mooncake or LMCache)",
        why="",
        cures=(
            check("check that the other side runs, has the same vLLM and settings, and answers on its side channel (NIXL) or port (store)", "ss -ltn | grep PORT; curl -s http://PEER:8000/health", when(r"(?i)remote|handshake|peer|connect|expired|time.?out|retry|inter-agent|endpoint|segment|http client|refused|KV load failure|transfer fail")),
            cure("if it was restarted alone and transfers still fail, restart both sides", None, when(r"handshake|Handshake|REMOTE_DISCONNECT|expired|inter-agent")),
            check("make UCX log the transport that fails", "UCX_LOG_LEVEL=info", when(r"UCX|NIXL_ERR")), check("test whether it works without RDMA", "UCX_TLS=tcp,cuda_copy", when(r"UCX|NIXL_ERR", seen=r"mlx5|RoCE|rdma|ibv_|ib_m|InfiniBand", lacks=r"cuda_copy' are not available")),
            cure("if two servers share a host, give each its own side channel", "VLLM_NIXL_SIDE_CHANNEL_HOST=IP VLLM_NIXL_SIDE_CHANNEL_PORT=5600", when(r"[Hh]andshake", seen=r"(?i)nixl")),
        ),
        deterministic=False,
        variants=(
            Variant(
                when=when(r"engine ID mismatch"),
                sentence="the NIXL handshake reached a different engine than the one that holds the KV cache",
                why="If no side channel is set, each server advertises its own default address; a restarted prefill server has a new ID, too.",
                cures=(cure("if they are not set, set, on each server, the address and port at which the other servers reach it", "VLLM_NIXL_SIDE_CHANNEL_HOST=IP VLLM_NIXL_SIDE_CHANNEL_PORT=5600", when(r"engine ID")), cure("if one side was restarted, check whether the proxy (or the other side) still holds its old ID and address; restart both")),
            ),
            Variant(
                when=when(facts=("rdma_devices",)),
                sentence="the transfer of KV cache failed: Mooncake found no RDMA device on this host and used another transport",
                why="Its startup lines name that transport, which must reach the memory of the other side.",
                cures=(check("check the RDMA devices from inside the container", "ls /dev/infiniband; ibv_devices"), cure("or choose TCP on both sides", "--kv-transfer-config '{…, \"kv_connector_extra_config\": {\"mooncake_protocol\": \"tcp\"}}'", when(r"(?i)mooncake|transport"))),
            ),
            Variant(
                when=when(r"NIXL [^\n]{0,80}(?:compatibility|mismatch)"),
                sentence="the two servers of a KV transfer were started with incompatible settings",
                why="Both need the same vLLM, model, data types, KV cache layout and attention backend.",
                cures=(check("compare the version and the arguments of both servers (the first lines of their logs)"),),
            ),
            Variant(
                when=when(r"expired KV blocks|lease expired"),
                sentence="KV blocks were released before the decode server had confirmed that it fetched them",
                why="The time for which the prefill server keeps blocks expired.",
                cures=(check("check whether the decode server keeps up: its waiting requests and its log", "curl -s http://DECODE:8000/metrics | grep num_requests_waiting"), cure("if it does, make the prefill server keep blocks longer (newer releases: kv_lease_duration in --kv-transfer-config)", "VLLM_NIXL_ABORT_REQUEST_TIMEOUT=SECONDS", when(r"expired KV blocks|lease expired"))),
            ),
            Variant(
                when=when(seen=r"register_memory|transports? .{0,80} (?:is|are) not available"),
                sentence="this side cannot register its memory for the transfer",
                cures=(check("list the transports of this UCX: GPU memory needs cuda_copy and cuda_ipc", "ucx_info -d | grep -i transport", when(seen=r"UCX|NIXL_ERR")), check("make UCX log the transport that fails", "UCX_LOG_LEVEL=info", when(seen=r"UCX|NIXL_ERR"))),
            ),
            Variant(
                when=when(r"no available RDMA|No matched device|cannot bind|initialization failed|Failed to mount segment|ibv_reg_mr|[Ff]ailed to register (?:address|memory)|registerMem"),
                sentence="the KV transfer engine could not be set up on this host",
                cures=(check("check the RDMA devices and the locked-memory limit from inside the container", "ls /dev/infiniband; ibv_devices; ulimit -l"),),
            ),
        ),
    ),
)  # fmt: skip
