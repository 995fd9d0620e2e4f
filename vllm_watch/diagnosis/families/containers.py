"""Known errors of containers, pods and programs that did not start."""

from vllm_watch.diagnosis.rule import Variant, cure, when

MEANINGS = (
    Variant(
        when=when(r"[Ee]xec format error"), sentence="the program was built for another kind of processor than this machine has, so it did not start",
        why="vLLM did not run, so there is only this log.",
        cures=(cure("compare the two", "uname -m; docker image inspect IMAGE --format '{{.Architecture}}'"), cure("use an image for this machine's architecture", "docker pull --platform linux/ARCH IMAGE", when(r"format error"))),
    ),
    Variant(
        when=when(r"(?:set_mempolicy|membind|\bmbind)\b.{0,60}not permitted"), sentence="this process may not bind its memory to a NUMA node",
        why="The seccomp filter of Docker and Kubernetes forbids the call.",
        cures=(cure("allow it", "docker run --cap-add SYS_NICE …   (Kubernetes: securityContext.capabilities.add)", when(r"not permitted")), cure("or start without this binding (--numa-bind, numactl)", None, when(r"not permitted"))),
    ),
    Variant(
        when=when(r"ErrImagePull|ImagePullBackOff|Failed to pull image"), sentence="the container's image could not be pulled, so vLLM did not start",
        why="The line names the reason: a tag that does not exist, no access to the registry, or no network.",
        cures=(cure("see the whole message", "kubectl describe pod POD"),),
    ),
    Variant(
        when=when(r"Insufficient (?:nvidia|amd)\.com/gpu"), sentence="no node has as many free GPUs as the pod asks for, so it was not started",
        why="The GPUs are held by other pods, or the device plugin does not offer them.",
        cures=(cure("see the GPUs of the nodes, and their holders", "kubectl describe nodes | grep -A8 -i 'allocated resources'; kubectl get pods -A -o wide"),),
    ),
    Variant(
        when=when(r"FailedMount"), sentence="a volume of the pod could not be mounted, so vLLM did not start",
        cures=(cure("see the volume and its claim", "kubectl describe pod POD; kubectl get pvc"),),
    ),
    Variant(
        when=when(r"command not found"), sentence="the shell does not find vllm",
        why="It is not installed, or the environment that has it is not active.",
        cures=(cure("see which Python has it", "which -a python python3; python -m pip show vllm"),),
    ),
    Variant(
        when=when(r"FileNotFoundError: \[Errno 2\] No such file or directory: '[\w.+-]{1,60}'", frames=r"/subprocess\.py "),
        sentence="a program that vLLM or a library starts is not in PATH",
        why="Either it is not installed, or its folder is missing from PATH: a program that pip installs is in the bin folder of its environment, which PATH contains only while the environment is active.",
        cures=(cure("check whether the program that the message names is found", "command -v PROGRAM; echo $PATH; ls $(dirname $(command -v python))"), cure("install it, or add its folder to PATH", None, when(r"No such file"))),
    ),
    Variant(
        when=when(r"invalid runtime name"), sentence="Docker does not know the runtime that was named, so the container was not started",
        why="The runtime nvidia comes with NVIDIA's container toolkit, and Docker must be configured for it; vLLM did not run.",
        cures=(cure("see the runtimes that Docker knows", "docker info | grep -i runtime"), cure("install the toolkit, and configure Docker for it", "sudo nvidia-ctk runtime configure --runtime=docker && sudo systemctl restart docker", when(r"name: nvidia"))),
    ),
    Variant(
        when=when(r"OCI runtime create failed|executable file not found"), sentence="the container could not be started; vLLM did not run",
        why="The end of the message names the reason: NVIDIA's hook, a command that the image lacks, or a mount.",
        cures=(cure("see whether the host itself sees its GPUs", "nvidia-smi; nvidia-ctk --version", when(r"nvidia|hook|legacy|cdi|CDI")), cure("compare the command with the image's entrypoint", "docker inspect IMAGE", when(r"executable file not found"))),
    ),
    Variant(
        when=when(r"rror response from daemon: |error running \w+ hook|nvidia-container-cli: "), sentence="the container runtime refused a command",
        why="The message names the reason. If the container was not started, vLLM did not run and has no log.",
        cures=(cure("check the container's state and the runtime's configuration", "docker ps -a; docker info"),),
    ),
)  # fmt: skip
