"""Known errors without a failure class.

Sources: vllm/entrypoints, vllm/multimodal, vllm/utils of vLLM 0.10 to 0.32; tpu-inference; CPython's multiprocessing.
"""

from vllm_watch.diagnosis.families import flags, memory
from vllm_watch.diagnosis.report import UNKNOWN
from vllm_watch.diagnosis.rule import Rank, Variant, check, cure, rule, when

RULES = (
    rule(UNKNOWN, "aiting for baton release", rank=Rank.SYMPTOM, quiet=True),
    rule(UNKNOWN, "does not exist", pattern=r"[Tt]he model `[^`]{1,300}` does not exist(?! or you)", rank=Rank.REQUEST, quiet=True, heals=True),
    rule(UNKNOWN, "m vllm.", "'-m', 'vllm.", "raised in subprocess", pattern=r"CalledProcessError: Command '\['[^']{1,200}', '-m', 'vllm\.|Error raised in subprocess:", rank=Rank.SYMPTOM, header=True),
    rule(UNKNOWN, "tool choice requires", "t most ", "is not a multimodal model", pattern=r'"auto" tool choice requires --enable-auto-tool-choice|At most \d+ \w{1,20}(?:\(s\))? may be provided in one|is not a multimodal model', rank=Rank.REQUEST, quiet=True, heals=True),
    rule(UNKNOWN, "tool_parser.py", "tool call from response", pattern=r"tool_parser\.py:\d+\] (?:Error|Exception|Failed)|Error (?:in )?extracting tool call|Error parsing tool", rank=Rank.REQUEST, heals=True),
    rule(UNKNOWN, "gaierror", "annot assign requested address", pattern=r"\bgaierror: |(?:Error: |ERROR\b).{0,120}[Cc]annot assign requested address", rank=Rank.GENERAL),
    rule(UNKNOWN, "ErrImagePull", "ImagePullBackOff", "Failed to pull image", "Insufficient nvidia.com/gpu", "Insufficient amd.com/gpu", "FailedMount", "command not found", pattern=r"ErrImagePull|ImagePullBackOff|Failed to pull image(?!.{0,300}no space left)|Insufficient (?:nvidia|amd)\.com/gpu|\bFailedMount\b|\bvllm: command not found", rank=Rank.GENERAL, quiet=True),
    rule(UNKNOWN, "rror response from daemon: ", "error running ", "nvidia-container-cli: ", pattern=r"\b[Ee]rror response from daemon: \S|\berror running \w{1,20} hook|^nvidia-container-cli: \S", rank=Rank.SYMPTOM),
    rule(UNKNOWN, '"code":', pattern=r'"code": ?4\d\d\b', rank=Rank.REQUEST, needs=when(r'"message": ?"')),
    rule(UNKNOWN, "recvValue failed on", pattern=r"recvValue failed on .{0,200}\bremote=\[(?!localhost|::1\]|(?:::ffff:)?127\.).{0,200}got 0 bytes", rank=Rank.SYMPTOM, quiet=True, heals=True),
    rule(UNKNOWN, "invalid runtime name", pattern=r"[Ee]rror response from daemon: .{0,80}invalid runtime name", rank=Rank.GENERAL),
    rule(UNKNOWN, "RESOURCE_EXHAUSTED: ", pattern=r"RESOURCE_EXHAUSTED: .{0,300}Attempting to (?:reserve|allocate)", rank=Rank.GENERAL),
    rule(UNKNOWN, "CUDA error (", pattern=r"\bCUDA error \(\S{1,300}\.\w{1,4}:\d+\): (?:invalid|operation not|too many|named symbol)", rank=Rank.GENERAL),
    rule(UNKNOWN, " error: ", pattern=r"^[A-Z]\w{1,20} error: [A-Z]", rank=Rank.MESSAGE),
    rule(UNKNOWN, "Device or resource busy", "No such device", "Input/output error", "Operation not permitted", "No such file or directory", pattern=r"(?:[Ff]ailed|[Cc]ould not|[Uu]nable to)\b.{0,300}(?<!\(\d)(?<!\(\d\d)(?<!\(\d\d\d): (?:Device or resource busy|No such device(?: or address)?|Input/output error|Operation not permitted|No such file or directory)\W{0,3}$", rank=Rank.SYMPTOM),
    rule(UNKNOWN, "cannot be pickled, error type", "subprocess-exited-with-error", rank=Rank.SYMPTOM, header=True),
    rule(UNKNOWN, "Worker failed with error", rank=Rank.SYMPTOM),
    rule(UNKNOWN, "not become ready", pattern=r"(?:did|does) not become ready (?:in|within|after)", rank=Rank.SYMPTOM),
    rule(UNKNOWN, "kernel errors might be asynchronously reported", rank=Rank.SYMPTOM),
    rule(UNKNOWN, "[nvidia", "[amdgpu]", "[xe]", pattern=r"\w\+0x[\da-f]+/0x[\da-f]+ \[(?:nvidia\w*|amdgpu|xe)\]", rank=Rank.SYMPTOM, quiet=True),
    rule(UNKNOWN, '" 500', pattern=r'"(?:POST|GET) [^"]{1,300}" 500\b', rank=Rank.REQUEST, quiet=True, heals=True),
    rule(UNKNOWN, "HarmonyError", pattern=r"HarmonyError: Unexpected token|HarmonyError: .{0,80}(?:parsing|header)", rank=Rank.REQUEST, heals=True),
)  # fmt: skip

_REQUEST = "Only such a request fails; a server keeps running."

MEANINGS = (
    Variant(
        when=when(r"[Tt]he model `[^`]+` does not exist"), sentence="a client requested a model name that this server does not serve",
        why=_REQUEST,
        cures=(check("compare the client's model name with the served names", "curl -s http://HOST:8000/v1/models"), cure("use a served name, or serve under the client's name", "--served-model-name NAME", when(r"does not exist"))),
    ),
    Variant(
        when=when(r"tool choice requires --enable-auto-tool-choice"), sentence="a client requested tool calls, and this server was started without them",
        why=_REQUEST,
        cures=(cure("start with both flags and this model's parser", "--enable-auto-tool-choice --tool-call-parser NAME", when(r"enable-auto-tool-choice")),),
    ),
    Variant(
        when=when(r"may be provided in one"), sentence="a request has more images, videos or audio inputs than this server allows",
        why=_REQUEST,
        cures=(cure("send fewer, or raise the limit, if the model accepts more (each takes memory)", "--limit-mm-per-prompt …", when(r"may be provided")),),
    ),
    Variant(
        when=when(r"is not a multimodal model"), sentence="a request has images, video or audio, and this model accepts only text",
        why=_REQUEST,
        cures=(cure("send text only, or serve a model that accepts them", None, when(r"multimodal")),),
    ),
    Variant(
        when=when(r"Attempted to assign .{0,60}multimodal tokens"),
        sentence="a prompt has another number of image, video or audio placeholders than of embeddings",
        why="The message has both numbers.",
        cures=(check("check whether the prompt's text contains such a token (<image>, <|image_pad|> or similar), and remove it", None, when(r"multimodal tokens")), check("check whether the versions of vLLM and Transformers match the model's page", "python -m pip show vllm transformers")),
    ),
    Variant(
        when=when(r"Mismatch in `\w{1,40}` token count|Failed to apply \w{1,60}Processor|(?:image|video|audio|multimodal)s? (?:tokens|placeholders?)\b.{0,80}(?:do(?:es)? not match|mismatch|found)"),
        sentence="images, video or audio could not be converted to tokens",
        cures=(check("check whether the versions of vLLM and Transformers match the model's page", "python -m pip show vllm transformers"),),
    ),
    Variant(
        when=when(r"tool_parser\.py|extracting tool call|parsing tool"), sentence="the model's output could not be parsed as a tool call",
        why="The server keeps running.",
        cures=(check("check whether --tool-call-parser matches this model, and whether its chat template supports tools", None, when(r"tool")),),
    ),
    Variant(
        when=when(r"gaierror: \[Errno -[235]\]|name resolution|Name or service not known"), sentence="a host name could not be resolved",
        cures=(check("check how this host (or container) resolves the name", "cat /etc/resolv.conf /etc/hosts; getent hosts NAME; hostname -i"),),
    ),
    Variant(
        when=when(r"^(?!.*[Cc]onnect).*[Cc]annot assign requested address"), sentence="this host (or container) does not have the address that a socket must use",
        why="An address to listen on (--host, VLLM_HOST_IP) must be one of this host's.",
        cures=(check("compare it with this host's addresses", "ip -br addr; env | grep -E 'HOST|ADDR'"),),
    ),
    Variant(
        when=when(r"[Ee]xec format error"), sentence="a file cannot be executed: it was built for another CPU architecture, or it is not a program (such as a script without a #! line)",
        cures=(check("compare the two architectures", "uname -m; docker image inspect IMAGE --format '{{.Architecture}}'"), cure("if they differ, use an image for this machine's architecture", "docker pull --platform linux/ARCH IMAGE", when(r"\bexec (?:/|user)"))),
    ),
    Variant(
        when=when(r"(?:set_mempolicy|membind|\bmbind)\b.{0,60}not permitted"), sentence="this process lacks permission to bind its memory to a NUMA node",
        why="Docker's default seccomp profile blocks the call without CAP_SYS_NICE.",
        cures=(cure("in a container, allow it", "docker run --cap-add SYS_NICE …   (Kubernetes: securityContext.capabilities.add)", when(r"not permitted")), cure("or start without NUMA binding (--numa-bind, numactl)", None, when(r"not permitted"))),
    ),
    Variant(
        when=when(r"ErrImagePull|ImagePullBackOff|Failed to pull image"), sentence="a container image could not be pulled, so its container did not start",
        cures=(check("read the full message", "kubectl describe pod POD"),),
    ),
    Variant(
        when=when(r"Insufficient (?:nvidia|amd)\.com/gpu"), sentence="the pod was not scheduled: the line has the reasons, and one is that a node has too few free GPUs",
        cures=(check("check the nodes' GPUs and which pods hold them", "kubectl describe nodes | grep -A8 -i 'allocated resources'; kubectl get pods -A -o wide"),),
    ),
    Variant(
        when=when(r"FailedMount"), sentence="a volume of the pod could not be mounted, and its containers start only with it",
        cures=(check("check the volume and its claim", "kubectl describe pod POD; kubectl get pvc"),),
    ),
    Variant(
        when=when(r"\bvllm: command not found"), sentence="the shell finds no vllm in the directories of PATH",
        cures=(check("check which Python has it", "which -a python python3; python -m pip show vllm"),),
    ),
    Variant(
        when=when(r"FileNotFoundError: \[Errno 2\] No such file or directory: '[\w.+-]{1,60}'", frames=r"/subprocess\.py "),
        sentence="a program that vLLM or a library runs is not in PATH",
        why="pip installs programs into the bin directory of the environment, which is in PATH only while the environment is active.",
        cures=(check("check whether PATH has the program that the message names", "command -v PROGRAM; echo $PATH; ls $(dirname $(command -v python))"), cure("install it, or add its directory to PATH", None, when(r"No such file"))),
    ),
    Variant(
        when=when(r"invalid runtime name"), sentence="Docker does not know the requested runtime, so the container was not started",
        cures=(check("list the runtimes that Docker knows", "docker info | grep -i runtime"), cure("install the toolkit, and configure Docker to use it", "sudo nvidia-ctk runtime configure --runtime=docker && sudo systemctl restart docker", when(r"name: nvidia"))),
    ),
    Variant(
        when=when(r"OCI runtime create failed"), sentence="the container could not be started; vLLM did not run",
        why="The end of the message gives the reason.",
        cures=(check("check whether the host itself sees its GPUs", "nvidia-smi; nvidia-ctk --version", when(r"nvidia|legacy")), check("compare the command with the image's entrypoint", "docker inspect IMAGE", when(r"executable file not found"))),
    ),
    Variant(
        when=when(r"rror response from daemon: |error running \w+ hook|nvidia-container-cli: "), sentence="a command of the container runtime failed",
        why="The message gives the reason. If the container was not started, vLLM did not run and has no log.",
        cures=(check("check the container's state and the runtime's configuration", "docker ps -a; docker info"),),
    ),
    Variant(
        when=when(r"recvValue failed on"), sentence="the process at the other end (remote in the line) closed its connection",
        why="During a requested stop this is normal.",
        cures=(check("read the last lines of the log of the process with that address"),),
    ),
    Variant(
        when=when(r"'body',.{0,200}Field required.{0,400}\"code\": ?4\d\d\b", seen=r"Unsupported upgrade request"), sentence="requests without a body were rejected (4xx): their client requested another protocol, usually HTTP/2",
        why="A warning before the rejection reports it. The server reads HTTP/1.1, and the upgrade request lost the body: the client may have written it correctly.", cures=(cure("make the client use HTTP/1.1 (Java: HttpClient.newBuilder().version(HTTP_1_1)), or put a proxy that does in front of the server", None, when(seen=r"upgrade request")),),
    ),
    Variant(
        when=when(r'"message": ?".{0,2000}"code": ?4\d\d\b'), sentence="a server rejected one request (4xx)",
        why="The message gives the reason.",
        cures=(cure("change the request as the message requires"), check("compare the client's paths and names with those of this server", "curl -s http://HOST:8000/v1/models", when(r'"code": ?404'))),
    ),
    Variant(
        when=when(r"task .{1,60} blocked for more than"), sentence="a process is blocked in the kernel (uninterruptible wait)",
        why="The next kernel lines have its stack.",
        cures=(check("check the cause of the wait, and whether a GPU or disk reported an error", "cat /proc/PID/stack; dmesg -T | grep -i -E 'xid|nvme|nfs|i/o error'"),),
    ),
    Variant(
        when=when(r"APIConnectionError|curl: \(7\)"), sentence="a client reports that its connection to a server failed",
        cures=(check("check whether the server listens, and on which address", "ss -ltnp | grep -E 'python|vllm'; docker ps"), check("read the server's own log")),
    ),
    Variant(
        when=when(r"(?<!Logits)(?<!Input)(?<!Output)(?<!IO)Processor' object has no attribute"), sentence="the processor (of images, video or audio) lacks an attribute that other code uses",
        cures=(check("check whether this vLLM supports the installed Transformers version", "python -m pip check; python -m pip show vllm transformers"),),
    ),
    Variant(
        when=when(r"Worker failed with error"), sentence="a worker failed, and this line only forwards its message",
        why="The quoted text is the worker's own message; its traceback, if it is in this log, is above.",
        cures=(check("search vLLM's issues for the quoted text, and read the worker's first error"),),
    ),
    Variant(
        when=when(r"kernel errors might be asynchronously reported"),
        sentence="the GPU runtime reported an error, and this line only explains it",
        why="PyTorch names the error directly above this line.",
        cures=(check("diagnose the log with the lines before it"), check("check whether the GPU reported an error", "dmesg -T | grep -i -E 'xid|nvrm|amdgpu'")),
    ),
    Variant(
        when=when(r"\w\+0x[\da-f]+/0x[\da-f]+ \[(?:nvidia\w*|amdgpu|xe)\]"), sentence="a kernel stack has a call of the GPU driver",
        why="If the next stacks of the same process are the same, the call hangs, and the process ends only when it returns.",
        cures=(check("check whether the stack stays the same, and the driver's report", "cat /proc/PID/stack; dmesg -T | grep -i -E 'xid|nvrm|amdgpu'"), cure("if it does, drain the host and reboot it")),
    ),
    Variant(
        when=when(r"\b(?:Check|Assert(?:ion)?) failed: .{0,300}\(\S{1,40} vs\. \S{1,40}\)"), sentence="a check in compiled code failed: the line has the two values that it compared",
        cures=(check("search the issues of vLLM and of the library in the line for this check"),),
    ),
    Variant(
        when=when(r'" 500\b'), sentence="requests failed with a server error (500), and no error line in this log gives the reason",
        cures=(check("read the lines before the first 500 response", "docker logs CONTAINER 2>&1 | grep -B60 -m1 '\" 500'"),),
    ),
    Variant(
        when=when(r"HarmonyError: (?!error downloading)(?:Unexpected token|.{0,80}(?:parsing|header))"),
        sentence="a gpt-oss model's output did not follow its format (Harmony), and the parser rejected it",
        why=_REQUEST,
        cures=(check("check whether a newer vLLM and openai-harmony parse it", "python -m pip show vllm openai-harmony"),),
    ),
    Variant(
        when=when(r"error downloading or loading vocab file"), sentence="the gpt-oss vocabulary (Harmony) could not be downloaded or loaded",
        why="The model's files do not include it: openai-harmony downloads it from openaipublic.blob.core.windows.net.",
        cures=(cure("download o200k_base.tiktoken on a host with network access, and set its directory", "TIKTOKEN_ENCODINGS_BASE=/path/to/encodings", when(r"vocab file")),),
    ),
    Variant(
        when=when(r"VLLM_PORT.{0,80}appears to be a URI|invalid literal for int\(\) with base 10: 'tcp://"),
        sentence="a variable that must be a number has an address, as Kubernetes sets it for each Service (VLLM_PORT for one named vllm)",
        why="Kubernetes sets variables such as NAME_PORT=tcp://… in each pod for each Service of its namespace.",
        cures=(cure("rename the Service, or disable these variables in the pod's spec", "enableServiceLinks: false", when(r"tcp://|URI")),),
    ),
    Variant(
        when=when(r"Unsupported connector type|[Cc]onnector \S{1,80} (?:is )?not (?:registered|found)"),
        sentence="this vLLM does not know the connector that a transfer setting (such as --kv-transfer-config) names",
        why="Each release has its own list; packages add others (kv_connector_module_path).",
        cures=(check("compare the name with this release's connectors (vllm/distributed/kv_transfer/kv_connector/factory.py)"),),
    ),
    Variant(
        when=when(r"(?i)async scheduling is (?:currently )?(?:not (?:yet |currently )?(?:supported|compatible)|only)|async.scheduling.{0,80}not.{0,20}supported"),
        sentence="asynchronous scheduling is incompatible with this model, this platform or another setting; the message names it",
        cures=(cure("turn it off", "--no-async-scheduling", when(r"(?i)async.scheduling")),),
    ),
    Variant(
        when=when(r"(?i)(?:speculative|draft model|\beagle3?\b|medusa|\bMTP\b).{0,160}(?:not (?:yet )?supported|does not support|should have|only supports?)"),
        sentence="speculative decoding, or one of its settings, is incompatible with this model, this draft model or another setting; the message names it",
        cures=(cure("serve without it meanwhile: remove --speculative-config", None, when(r"(?i)specul|draft|eagle|medusa|MTP")), check("compare the draft model's vocabulary, layers and architecture with the target model's", None, when(r"(?i)vocab"))),
    ),
    Variant(
        when=when(r"(?i)\beplb\b.{0,120}(?:not supported|only supported|requires|not a Mixture)|num_redundant_experts.{0,60}(?:not|only) supported"),
        sentence="expert load balancing (EPLB) is incompatible with this model or these settings",
        cures=(cure("remove --enable-eplb and its settings", None, when(r"(?i)eplb|redundant_experts")),),
    ),
    Variant(
        when=when(r"\b[A-Za-z_]\w{0,40} ?=? ?\(?\d{1,9}\)? must be (?:divisible by|a multiple of) (?:the )?[A-Za-z_]\w{0,40} ?=? ?\(?\d"),
        sentence="two sizes do not divide evenly: the message names both, and the first must be a multiple of the second",
        cures=(cure("if a setting determines one of the numbers, change it", None, when(r"must be")), cure("for experts: use a number of ranks (tensor × data parallel size) that divides the number of experts", None, when(r"experts.{0,80}(?:rank|ep_size|parallel)")), cure("or add redundant experts until the total is divisible", "--enable-eplb --eplb-config '{\"num_redundant_experts\": N}'", when(r"num_redundant_experts"))),
    ),
    Variant(
        when=when(r"index out of bounds: 0 <= \w+ < \d"),
        sentence="a compiled kernel got an out-of-range index: the last number is the limit",
        why="If that is the vocabulary size, a token ID was negative or too large.",
        cures=(check("compare the number with the vocabulary sizes of the model and its tokenizer", "grep vocab_size /path/to/model/config.json"), check("search vLLM's issues for this model")),
    ),
    Variant(
        when=when(r"UnidentifiedImageError|cannot identify image file"), sentence="the bytes of an image cannot be decoded as an image",
        cures=(check("check whether the bytes are an image (for a URL, whether its server sends one), and send data as data:image/TYPE;base64,DATA"),),
    ),
    Variant(
        when=when(r"SymmDeviceMemory|[Ss]ymmetricMemory|multicast"),
        sentence="a call for memory that the GPUs share (symmetric memory, multicast) failed",
        cures=(check("check the fabric's state", "nvidia-smi -q | grep -A3 Fabric; systemctl status nvidia-fabricmanager"), cure("disable it", "VLLM_ALLREDUCE_USE_SYMM_MEM=0", when(frames=r"device_communicators/symm_mem")), cure("disable the fused all-reduce", "--compilation-config '{\"pass_config\": {\"fuse_allreduce_rms\": false}}'", when(r"SymmDeviceMemory"))),
    ),
    Variant(
        when=when(r"RESOURCE_EXHAUSTED.{0,300}(?:HBM|device buffer|Attempting to (?:reserve|allocate))"), sentence="the TPU ran out of memory (HBM)",
        why="Weights, KV cache, compiled programs and the largest step share it.",
        cures=(cure("leave more of it to compiled programs", "a smaller --gpu-memory-utilization", when(r"loading program")), cure("spread the model over more chips, or allow only shorter requests", "--tensor-parallel-size N   (or a smaller --max-model-len)", when(r"HBM|device buffer|Attempting")),),
    ),
    Variant(
        when=when(r"(?i)(?:/dev/(?:vfio|accel|dri|davinci|kfd|nvidia)\S*|TPU).{0,120}(?:resource busy|already in use)"),
        sentence="the device in the message (TPU or other accelerator) is already in use",
        cures=(check("check which process holds it, and end it if it is not needed", "lsof /dev/vfio/* /dev/accel*   (the device in the message)"), cure("if no process does, check for a stale libtpu lock, and delete it", "ls -l /tmp/libtpu_lockfile", when(r"libtpu_lockfile"))),
    ),
    Variant(
        when=when(r"initialize backend 'tpu'|TPU initialization failed"), sentence="JAX could not use the TPU",
        cures=(check("check the devices and the processes that hold them", "ls /dev/vfio /dev/accel*; lsof /dev/vfio/* /dev/accel*; python -m pip list | grep -i -E 'jax|libtpu'"),),
    ),
    Variant(
        when=when(r"CUDA error: (?:invalid argument|out of memory|OS call failed)", seen=memory.PINS),
        sentence="host memory could not be pinned",
        why="The failed call requests host memory that the GPU can address.",
        cures=(check("check the limit and the available memory", "ulimit -l; free -g; cat /sys/fs/cgroup/memory.max"), cure("request a smaller host memory buffer", "LMCACHE_MAX_LOCAL_CPU_SIZE=GIB", when(frames=r"(?i)lmcache/")), cure("request a smaller host memory buffer", "--kv-offloading-size GIB", when(frames=r"kv_offload"))),
    ),
    Variant(
        when=when(r"CUDA error \(\S{1,300}\): (?:invalid|named symbol)"), sentence="a compiled library made a CUDA call that was rejected",
        why="The path in the line names the library, and may name the GPU generation that the kernel is for.",
        cures=(check("compare that with this GPU, and check the library's version", "nvidia-smi --query-gpu=name,compute_cap --format=csv; python -m pip list | grep -i -E 'xformers|flash|vllm'"), cure("start with another attention backend, to compare", "--attention-backend NAME", when(r"(?i)attention|flash|fmha"))),
    ),
    Variant(
        when=when(r"operation not permitted when stream is capturing"),
        sentence="an operation that is not allowed during CUDA graph capture was called, such as the first load of a kernel",
        cures=(cure("serve without CUDA graphs meanwhile (slower decoding)", "--enforce-eager", when(r"capturing")), check("search vLLM's issues for the function in the traceback")),
    ),
    Variant(
        when=when(r"Device acquire failed"), sentence="a Gaudi module could not be acquired",
        why="A module serves one process.",
        cures=(check("check the modules and the processes that hold them", "hl-smi; lsof /dev/accel/*; env | grep HABANA_VISIBLE"),),
    ),
    Variant(
        when=when(r"Client\w{0,20}Error|HTTPError|HTTPStatusError|Timeout\w{0,5}|Connection\w{0,10}Error", frames=r"fetch_(?:image|video|audio)|load_from_url"),
        sentence="an image, video or audio could not be fetched from its URL",
        why=_REQUEST,
        cures=(check("check whether the server (its container) can reach the URL, or send the data inline (base64)", "curl -sI URL", when(r"Error|Timeout")),),
    ),
    Variant(
        when=when(r"CUDA error: peer access is not supported|peer mapping resources exhausted"), sentence="the GPUs cannot map each other's memory (P2P), and a call requested it",
        cures=(check("check which GPUs support P2P", "nvidia-smi topo -p2p r; nvidia-smi topo -m"), cure("disable P2P in NCCL and in vLLM's all-reduce", "NCCL_P2P_DISABLE=1 vllm serve … --disable-custom-all-reduce", when(r"peer"))),
    ),
    Variant(
        when=when(r"Out of range float values are not JSON compliant"), sentence="a NaN or infinite value was to be sent as JSON, which cannot represent it",
        why="A token of probability 0 has an infinite log probability.",
        cures=(check("if the request asks for logprobs, send it without, to compare"), check("search vLLM's issues for this message and the model")),
    ),
    Variant(
        when=when(r"Expected all tensors to be on the same device"), sentence="an operation got tensors on two devices; the message names them",
        cures=(check("search vLLM's issues for the model and the innermost function in the traceback"),),
    ),
    Variant(
        when=when(r"probability tensor contains either"), sentence="the probabilities of the next token contain NaN, infinity or a negative number, so no token could be sampled",
        cures=(check("compare the dtype in the model's config with the one in use", "grep dtype /path/to/model/config.json"), check("compare with another attention backend and, if set, without KV cache quantization", None, when(r"probability tensor"))),
    ),
    Variant(
        when=when(r"file_system_monitor|Object creation will fail if spilling", serving=False), sentence="the disk that holds Ray's session directory is nearly full",
        why="This is a Ray warning. Ray fails only if it must spill objects to this disk, or cannot write its logs.",
        cures=(check("check how full the disk is, and the size of old sessions", "df -h /tmp; du -sh /tmp/ray"), cure("if it is full, delete the sessions of clusters that no longer run, or move the directory elsewhere", "ray start --temp-dir=/path …", when(r"space|spill"))),
    ),
    Variant(
        when=when(r"CUDA error: (?:operation not (?:supported|permitted)|unknown error|OS call failed|too many resources|invalid configuration|invalid (?:argument|resource handle|value))|CUDA driver error: \w|HIP error: (?:invalid|operation|unknown error)"),
        sentence="a GPU runtime or driver call failed or was rejected",
        why="Such an error may be reported late, at another call than the failing one.",
        cures=(check("find the failing call", "CUDA_LAUNCH_BLOCKING=1 vllm serve …", when(r"CUDA (?:driver )?error")), check("find the failing call", "HIP_LAUNCH_BLOCKING=1 vllm serve …", when(r"HIP error")), check("check whether the GPU reported an error", "dmesg -T | grep -i -E 'xid|nvrm'", when(r"unknown error", lacks=r"HIP error"))),
    ),
    Variant(
        when=when(r"Invalid value '.{0,100}' for VLLM_|VLLM_\w{1,60}\b.{0,100}(?:must be one of|[Vv]alid (?:options|values))"),
        sentence="a vLLM environment variable has a value that this release does not accept",
        cures=(cure("unset it, or use a value that the message names", "env | grep VLLM_", when(r"VLLM_")),),
    ),
    Variant(
        when=when(r"(?i)block_size .{0,40}must be <= max_num_batched_tokens"),
        sentence="--max-num-batched-tokens is smaller than the block size in the message",
        cures=(cure("raise it at least to the block size", "--max-num-batched-tokens N", when(r"max_num_batched_tokens")),),
    ),
    Variant(
        when=when(r"::\w{1,60}\(\) expected at most \d+ argument\(s\) but received \d+"),
        sentence="a compiled operator was called with more arguments than its build accepts",
        why="The name before the :: is the extension's.",
        cures=(cure("install both from one release, or the release of the extension that this vLLM requires", None, when(r"expected at most")),),
    ),
    Variant(
        when=when(r"[Ww]aiting for baton release"),
        sentence="a process waits for the lock file of a build that another process started or left behind",
        why="If that process is gone, the others wait forever, and the engine reports only that they do not respond.",
        cures=(check("check whether a build is still running", "ps aux | grep -E 'nvcc|cicc|hipcc|ninja'"), cure("if none is, stop the engine, delete the lock file that the line names, and start again", None, when(r"baton"))),
    ),
    Variant(
        when=when(r"[Hh]ybrid KV cache manager is disabled"),
        sentence="this model has layers of several types and needs the hybrid KV cache manager, which is disabled",
        cures=(check("check whether a KV connector, KV events or a flag is set: each can disable it"), cure("remove this flag, if it is set", "--disable-hybrid-kv-cache-manager", when(seen=r"disable.hybrid"))),
    ),
    Variant(
        when=when(r"Unknown vLLM environment variable"), sentence="the environment has a variable that this vLLM does not read, and a setting rejects such variables",
        cures=(cure("unset it; vllm serve --help (or --help=all) shows the flag that may have replaced it", "env | grep VLLM_", when(r"VLLM_")), cure("set the attention backend with its flag", "--attention-backend NAME", when(r"VLLM_ATTENTION_BACKEND"))),
    ),
    Variant(
        when=when(r"(?i)page size .{0,80}(?:layer|divi|unif)|common block size|block size \d+ is not supported|one unified type|cannot unify"),
        sentence="the block or page size of the KV cache does not suit this model's layers or the attention backend",
        cures=(cure("remove --block-size, --kv-cache-dtype and --attention-backend, if they are set", None, when(r"(?i)page|block|unif")),),
    ),
    Variant(
        when=when(r"(?:\bDCP\b|decode_context_parallel|context parallel).{0,160}\b(?:not|only|requires?|must)\b"), sentence="context parallelism, or its size, is incompatible with this model, the attention backend or another setting",
        cures=(cure("remove --decode-context-parallel-size", None, when(r"DCP|decode.context.parallel")),),
    ),
    Variant(
        when=when(r"(?i)(?:not supported|not available|unsupported) on .{0,40}(?:compute capability|\bSM ?\d|this GPU|this device|this platform)"),
        sentence="this device or platform does not support a feature; the message names it",
        cures=(cure("if a setting requests the feature, remove it; otherwise use a version of the model without it", None, when(r"upported|available")),),
    ),
    Variant(
        when=when(r"\b[Ss]izes? of (?:the )?tensors?\b.{0,120}must match|shapes cannot be multiplied|exceeds dimension size|invalid for input of size"),
        sentence="a tensor has another size than an operation needs",
        cures=(check("search vLLM's issues for the model and the function in the traceback"),),
    ),
    Variant(
        when=when(r"'/psm_\w+'|/dev/shm/psm_"), sentence="a shared memory segment of Python processes is gone (or left over)",
        cures=(check("read the first error of the other processes; list /dev/shm", "ls -l /dev/shm"),),
    ),
    Variant(
        when=when(r"Errno 111|ConnectionRefusedError|Connection refused"), sentence="a connection was refused: no process listens at the other end",
        cures=(check("check in the traceback which connection it is, and whether its server is running", "ss -ltnp"),),
    ),
    Variant(
        when=when(r"BrokenPipeError|EOFError(?!: (?:Ran out|EOF when|Compressed))|ConnectionResetError"), sentence="the other end of a pipe or connection was closed",
        cures=(check("read the first error of the other processes, and check whether one was killed", "dmesg -T | grep -i -E 'killed process|xid|segfault'"),),
    ),
    Variant(
        when=when(r"Errno (?:5|116)\]|^(?!.*/dev/).*Input/output error|Stale file handle"), sentence="the system reported an input/output error or a stale file handle",
        cures=(check("check the kernel log and the mounts", "dmesg -T | grep -i -E 'i/o error|nfs|nvme|ext4|xfs'; df -h"),),
    ),
    Variant(
        when=when(r"invalid literal for int\(\) with base 10: '(?:GPU|MIG)-"),
        sentence="a list of visible devices has UUIDs, and the code expects numbers",
        cures=(cure("list them by number", "nvidia-smi -L; export CUDA_VISIBLE_DEVICES=0,1", when(r"GPU-", lacks=r"(?i)\brocm|\bhip")),),
    ),
    Variant(
        when=when(r"botocore|NoCredentialsError|s3://"), sentence="object storage could not be used",
        cures=(check("check the settings that this process gets, and test them", "env | grep -E 'AWS_|RUNAI_'; aws s3 ls s3://BUCKET/PATH"),),
    ),
    Variant(
        when=when(r"cuDNN version incompat"), sentence="the loaded cuDNN is not the one that this PyTorch was built with",
        why="The line has both versions.",
        cures=(check("check which directory that is", "echo $LD_LIBRARY_PATH; ldconfig -p | grep cudnn"), cure("start without that directory in it", "env -u LD_LIBRARY_PATH vllm serve …", when(r"LD_LIBRARY_PATH"))),
    ),
    Variant(
        when=when(r"CUBLAS_STATUS_(?:INVALID_VALUE|NOT_SUPPORTED|ARCH_MISMATCH)|CUDNN_STATUS|cuDNN error"), sentence="a call of cuBLAS or cuDNN failed",
        cures=(check("check which versions are installed and loaded", "echo $LD_LIBRARY_PATH; python -m pip list | grep -i -E 'cublas|cudnn|^torch'; ldconfig -p | grep -E 'cublas|cudnn'"),),
    ),
    Variant(
        when=when(r"Error: .{0,200}\bnot (?:supported|compatible) with\b.{0,300}\b[Pp]lease (?:try|use|set|disable|enable|remove)\b"),
        sentence="two settings or features are incompatible; the message names them and the change to make",
        cures=(cure("make the change that the message names"),),
    ),
    Variant(
        when=when(r"TypeError: .{0,200}(?:unexpected keyword argument|positional-only arguments? passed as keyword|missing \d{1,2} required (?:positional|keyword-only) argument|takes .{1,40} positional arguments? but|got multiple values for argument)"),
        sentence="a function was called with arguments that it does not accept",
        cures=(check("find the package that contains the function, and compare its version with the one that this vLLM requires", "python -m pip check; python -m pip show vllm PACKAGE"), check("search the issues of vLLM and of that package for this message")),
    ),
    Variant(
        when=when(r"Error Internal|TMA descriptor|(?i:(?-i:(?!Cutlass[A-Z]))cutlass|gemm(?!a)).{0,400}(?i:\barch|capability|\bsm_?\d|\bgfx\d|shape|unsupported|not (?:supported|implemented))"),
        sentence="a compiled kernel (CUTLASS, GEMM or TMA) rejected its call",
        cures=(check("search vLLM's issues for the kernel's name and this GPU; a newer release may choose another kernel"),),
    ),
    Variant(
        when=when(r"level_zero backend failed|Native API failed|UR_RESULT_ERROR"), sentence="a call to the Intel GPU's runtime (SYCL, Level Zero) failed",
        cures=(check("check the versions of the driver and the compute runtime, and the kernel log", "dpkg -l | grep -i -E 'level-zero|intel-opencl'; dmesg -T | grep -i -E 'xe |i915'"),),
    ),
    Variant(
        when=when(r"Encoder cache miss for"),
        sentence="the encoder cache does not have an image, video or audio input that a request needs",
        cures=(check("search vLLM's issues for this message, with the release and the settings (speculative decoding, prefix caching)"),),
    ),
    Variant(
        when=when(r"Expected a cached item for mm_hash"),
        sentence="the multimodal processor caches of the server's processes disagree",
        cures=(cure("serve without the processor cache", "--mm-processor-cache-gb 0", when(r"cached item")), check("search vLLM's issues for this message, with the release and the settings (speculative decoding, prefix caching)")),
    ),
    Variant(
        when=when(r"could not locate .{0,60}tokens in the tokenizer"),
        sentence="the tokenizer lacks the tokens that the configured tool call or reasoning parser needs",
        cures=(cure("set this model's parser, or remove the flag", "--reasoning-parser NAME   (or --tool-call-parser NAME)", when(r"could not locate")),),
    ),
    Variant(
        when=when(r"\bUVA is not available"),
        sentence="vLLM needs pinned host memory that the GPU can address (UVA), and does not use pinned memory here",
        why="vLLM does not pin memory under WSL by default.",
        cures=(cure("under WSL, enable it", "VLLM_WSL2_ENABLE_PIN_MEMORY=1", when(r"UVA")), cure("or use the model runner that does not need it", "VLLM_USE_V2_MODEL_RUNNER=0", when(frames=r"worker/gpu/"))),
    ),
    Variant(
        when=when(r"memory space vmem"), sentence="a TPU kernel needs more of the chip's scratch memory (VMEM) than is available",
        why="VMEM is not the TPU's main memory (HBM).",
        cures=(check("search tpu-inference's issues for this kernel and chip"),),
    ),
    Variant(
        when=when(r"Device' object has no attribute 'coords'|Error\n.{0,80}\.coords\b"),
        sentence="a JAX device has no coordinates, so it is not a TPU as tpu_inference expects it",
        cures=(check("check the devices and versions", "python -c 'import jax; print(jax.devices())'; python -m pip list | grep -i -E 'jax|libtpu|tpu'"),),
    ),
    Variant(
        when=when(r"Cannot re-initialize CUDA in forked subprocess"), sentence="the parent process used CUDA before it forked this one",
        why="A forked process cannot use CUDA again.",
        cures=(cure("start workers with spawn instead of fork", "VLLM_WORKER_MULTIPROC_METHOD=spawn", when(r"forked")), cure("in a script, do not use CUDA before LLM(…)", None, when(r"forked"))),
    ),
    Variant(
        when=when(r"current process has finished its\s*$|bootstrapping phase|freeze_support\(\)"),
        sentence="the script starts vLLM outside `if __name__ == \"__main__\"`",
        why="Workers start as new processes, which import the script again.",
        cures=(cure('move the code that creates LLM(…) under if __name__ == "__main__":', None, when(r"bootstrapping|finished its|freeze_support")),),
    ),
    Variant(
        when=when(r"Too many open files(?! in system)|\[Errno 24\](?! inotify)"), sentence="this process reached its limit of open files",
        why="Each connection and each shard uses a file descriptor.",
        cures=(check("check the limit and raise it (systemd: LimitNOFILE, Docker: --ulimit nofile=…)", "ulimit -n", when(r"open files|Errno 24")),),
    ),
    Variant(
        when=when(r"can't start new thread|pthread_create failed(?!.{0,80}not permitted)|(?:fork|BlockingIOError|clone|thread).{0,80}Resource temporarily unavailable|[Tt]hread creation failed"),
        sentence="this process cannot start more threads or processes",
        cures=(check("check the limits (Docker: --pids-limit, Kubernetes: the kubelet's podPidsLimit)", "ulimit -u; cat /sys/fs/cgroup/pids.max; cat /sys/fs/cgroup/pids.current"), cure("limit the threads of each process", "OMP_NUM_THREADS=1", when(r"libgomp|OpenBLAS|OMP"))),
    ),
    flags.NOT_A_NUMBER,
    Variant(
        when=when(r"KeyError: '[\w.]{1,120}\.(?:\w{0,20}attn|mixer|mamba|indexer)'"), sentence="a worker looked up a layer that it does not have",
        why="The key is the name of a layer, not of a weight.",
        cures=(cure("start once with tensor parallelism only, if there are enough GPUs", "--pipeline-parallel-size 1", when(seen=r"pipeline.parallel.size\W{1,4}[2-9]")), check("search vLLM's issues for the layer's type and the model")),
    ),
    Variant(
        when=when(r"only supports? .{1,160}, but (?:you )?(?:got|found|have|choose|chose|use) "), sentence="a value is not supported: the message names the supported ones and the one that it got",
        cures=(cure("if a setting determines it, set it to a value that the message names, or disable the feature", None, when(r"only support")),),
    ),
    Variant(
        when=when(r"(?:--[a-z][\w-]{3,60}|\b[a-z]+(?:_[a-z]+)+`?) (?:is|are) only supported (?:for|with|on|in|by|when|if) "), sentence="the message names a setting or feature, and the condition that it needs",
        cures=(cure("remove the setting, if the message's condition is not met here", None, when(r"only supported")),),
    ),
    Variant(
        when=when(r"NotImplementedError: .{0,300}\bnot (?:yet )?(?:supported|implemented)\b"), sentence="the code does not implement a combination or feature; the message names it",
        cures=(check("search for the message in the issues of the package in the traceback: a later release may support it"), cure("disable the feature that the message names, if it is a setting")),
    ),
)  # fmt: skip
