"""`vllm-watch preflight`: every failure that it can know, of real processes, sockets, files and a stub driver."""

import signal
import socket
import subprocess
from pathlib import Path

import pytest

from tests.cli.preflight_host import GIB, PreflightHost, h100, shard
from vllm_watch.cli.helpers.launch import gather


@pytest.fixture
def host(library, tmp_path):
    return PreflightHost(library, tmp_path)


def problem(found, check, cause):
    """The finding, which must be a problem of that cause; its text and the commands that mend it."""
    finding = found[check]
    assert (finding["status"], finding["cause"]) == ("problem", cause), finding
    assert any(each.isdigit() for each in finding["text"]), "numbers are in it"
    return finding["text"], [fix["command"] for fix in finding["fixes"]]


def test_nothing_in_the_way(host):
    status, found = host.check("--max-model-len", 8192)
    assert status == 0
    assert {name: each["status"] for name, each in found.items()} == dict.fromkeys(
        ("command", "files", "gpus", "driver", "memory", "fits", "port"), "ok"
    )
    assert found["command"]["text"].startswith("vLLM 0.11.0, ")
    assert found["memory"]["text"] == "GPU 0: 78.50 GiB free, 71.10 wanted"
    said = host.run(host.command("--max-model-len", 8192)).stdout
    assert said.rstrip().endswith("GO: no problem found")


# Release, VLLM_USE_V1, is it told which engine to be: V0, V1, or left to the release.
ENGINES = (
    ("0.7.2", "1", False),
    ("0.8.5", "0", True),
    ("0.8.5", None, None),
    ("0.11.0", "0", None),
)


@pytest.mark.parametrize(("release", "asked", "old"), ENGINES)
def test_the_command_says_which_engine_and_whether_it_sees(host, release, asked, old):
    """The environment chose the engine while there were two; the encoder is left out where a flag says so."""
    host.install(vllm=release)
    chosen = {} if asked is None else {"VLLM_USE_V1": asked}
    words = ["vllm", "serve", str(host.model), "--language-model-only"]
    flags = gather(words, host.env() | chosen).flags
    assert (flags.use_v0, flags.language_model_only) == (old, True)


def test_memory_that_an_orphan_holds(host, left):
    (pid,) = left.orphans("VLLM::EngineCore")
    host.gpus(h100(processes={pid: 60 * GIB}))
    status, found = host.check("--max-model-len", 8192)
    text, commands = problem(found, "memory", "gpu_occupied")
    assert status == 3
    assert text.startswith(
        f"GPU 0: 18.50 of 79.00 GiB are free, --gpu-memory-utilization 0.9 asks for 71.10; held by process {pid} 'VLLM::EngineCore 600' with 60.00 GiB (stale: orphaned_worker, "
    )
    assert commands[0] == f"vllm-watch gpus --reclaim {pid}"


def test_memory_that_a_living_process_holds(host, left):
    """A lower utilization where the model fits into it, another GPU where one is free; nobody is ended."""
    pid = left.start("sleep", "600").pid
    host.gpus(h100(processes={pid: 40 * GIB}), h100(1))
    _, found = host.check("--max-model-len", 8192)
    _, commands = problem(found, "memory", "gpu_occupied")
    launch = f"vllm serve {host.model} --max-model-len 8192"
    assert commands == [
        f"{launch} --gpu-memory-utilization 0.48",
        f"CUDA_VISIBLE_DEVICES=1 {launch}",
        f"vllm-watch preflight --exec --wait-for-vram 120 -- {launch}",
    ]
    host.environment["CUDA_VISIBLE_DEVICES"] = "1"
    assert host.check("--max-model-len", 8192)[0] == 0


def test_an_old_vllm_does_not_look_at_free_memory(host, left):
    """Before 0.9.1 what others hold is taken from the KV cache: a warning where it still fits."""
    host.install(vllm="0.8.5")
    pid = left.start("sleep", "600").pid
    host.gpus(h100(processes={pid: 30 * GIB}))
    status, found = host.check("--max-model-len", 8192)
    assert (status, found["memory"]["status"], found["fits"]["status"]) == (0, "warning", "ok")
    host.gpus(h100(processes={pid: 55 * GIB}))
    problem(host.check("--max-model-len", 8192)[1], "fits", "oom_loading_weights")


def test_memory_that_hardly_suffices(host):
    """vLLM's own context comes first: said, and no reason to stop."""
    host.gpus(h100(memory_used=int(7.7 * GIB)))
    status, found = host.check("--max-model-len", 8192)
    assert (status, found["memory"]["status"], found["memory"]["cause"]) == (0, "warning", "memory_tight")  # fmt: skip
    assert "205 MiB more than vLLM asks for" in found["memory"]["text"]


def test_too_long_for_the_kv_cache(host):
    host.gpus(h100(memory_total=24 * GIB))
    _, found = host.check("--max-model-len", 100000)
    text, commands = problem(found, "fits", "kv_cache_too_small")
    assert text.startswith("one request of 100,000 tokens needs 6.10 GiB of KV cache, ")
    assert "tokens would fit" in text
    assert len(commands) > 2
    for each in filter(None, commands):
        assert host.check(*each.split(" ")[3:])[0] == 0, each


def test_hardly_too_long_for_the_kv_cache(host):
    """Within what the estimate may be wrong by: said, and no reason to stop."""
    host.gpus(h100(memory_total=24 * GIB))
    text = host.check("--max-model-len", 100000)[1]["fits"]["text"]
    longest = int(text.split()[-4].replace(",", ""))
    status, found = host.check("--max-model-len", longest + 1600)
    assert (status, found["fits"]["status"], found["fits"]["cause"]) == (0, "warning", "kv_cache_too_small")  # fmt: skip
    assert found["fits"]["fixes"]


def test_too_large_for_the_gpu(host):
    host.gpus(h100(memory_total=16 * GIB))
    text, commands = problem(host.check()[1], "fits", "oom_loading_weights")
    assert text.startswith("15.00 GiB of weights and ")
    assert commands


PARALLEL = {
    "more ranks than GPUs": (
        ["-tp", "4"], {}, "gpus", "tp_exceeds_gpus", "TP 4 wants 4 GPUs, 2 are visible", "-tp 2",
    ),
    "stages and replicas count, too": (
        ["-tp", "2", "-pp", "2", "-dp", "2"], {}, "gpus", "tp_exceeds_gpus", "TP 2 × PP 2 × DP 2 wants 8 GPUs, 2 are visible", None,
    ),
    "GPUs that a variable hides": (
        ["-tp", "2"], {"CUDA_VISIBLE_DEVICES": "1"}, "gpus", "tp_exceeds_gpus",
        "TP 2 wants 2 GPUs, 1 is visible: CUDA_VISIBLE_DEVICES=1 hides 1 more", "CUDA_VISIBLE_DEVICES=0,1 vllm serve",
    ),
    "a GPU that is not there": (
        [], {"CUDA_VISIBLE_DEVICES": "7"}, "gpus", "gpu_not_there",
        "CUDA_VISIBLE_DEVICES=7 names '7', and this host has 2 GPUs: CUDA ignores it and all after it", "nvidia-smi -L",
    ),
    "heads that cannot be shared": (
        ["-tp", "8"], {}, "heads", "tp_not_dividing_heads", "--tensor-parallel-size 8 does not divide the model's 28 attention heads", "-tp 7",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("flags", "environment", "check", "cause", "says", "mends"), PARALLEL.values(), ids=PARALLEL)  # fmt: skip
def test_ranks(host, flags, environment, check, cause, says, mends):
    host.gpus(h100(), h100(1))
    host.environment |= environment
    text, commands = problem(host.check(*flags)[1], check, cause)
    assert text == says
    assert mends is None or any(mends in (each or "") for each in commands), commands


def test_a_host_without_a_driver(host, tmp_path):
    """A build for CUDA cannot start there; of a build for the CPU nothing is asked."""
    host.stub.unload_driver()
    text, _ = problem(host.check()[1], "gpus", "no_gpu")
    assert "driver is not loaded" in text
    host.install(vllm="0.11.0+cpu", torch="2.8.0+cpu")
    for gpus in ((), (h100(processes={1: 70 * GIB}),)):
        host.gpus(*gpus)
        status, found = host.check()
        assert (status, found["gpus"]["status"]) == (0, "unknown")
        assert found.keys() & {"memory", "fits", "driver"} == set()


def test_memory_of_a_process_that_is_no_more(host):
    """A context outlived it: nobody is there to be ended, so what helps is said in words."""
    with subprocess.Popen(["true"]) as zombie:
        host.gpus(h100(processes={zombie.pid: 60 * GIB}), **{f"kept__{zombie.pid}": 1})
        _, found = host.check("--max-model-len", 8192)
    problem(found, "memory", "gpu_occupied")
    fix = found["memory"]["fixes"][0]
    assert fix["what"].startswith(f"process {zombie.pid} has ended already (zombie_context): ")
    assert fix["command"] is None


def test_a_driver_that_does_not_answer(host):
    host.stub.patch({"error.nvmlDeviceGetCount_v2": 999})
    status, found = host.check()
    assert (status, found["gpus"]["status"]) == (0, "unknown")


def test_a_driver_that_is_too_old(host):
    """For the CUDA that PyTorch brings; where only the toolkit is newer, a warning."""
    host.install(torch="2.9.0+cu130")
    host.gpus(h100(), driver="535.54.03")
    text, commands = problem(host.check()[1], "driver", "driver_too_old")
    assert text == "PyTorch 2.9.0+cu130 brings CUDA 13.0, which needs driver 580.65 or later; this one is 535.54.03"  # fmt: skip
    assert commands[0] == "apt-get install nvidia-driver-580"
    host.install(torch="2.8.0+cu128")
    status, found = host.check("--max-model-len", 8192)
    assert (status, found["driver"]["status"]) == (0, "warning")


def test_a_port_that_is_taken(host):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        text, commands = problem(host.check("--port", port)[1], "port", "port_in_use")
        assert text.startswith(f"port {port} is taken: process ")
        assert f" listens on 127.0.0.1:{port}" in text
        free = int(commands[0].split()[-1])
        assert host.check("--port", free)[1]["port"]["status"] == "ok"
        assert host.check("--port", port, "--host", "127.0.0.2")[1]["port"]["status"] == "ok"
    assert host.check("--port", port)[1]["port"]["status"] == "ok"


def test_shards_that_are_missing(host):
    host.write_model(shards=4, _name_or_path="Qwen/Qwen3-8B")[2].unlink()
    text, commands = problem(host.check()[1], "files", "weights_missing")
    assert text == f"1 of 4 files of weights are missing in {host.model}: model-00003-of-00004.safetensors"  # fmt: skip
    assert commands == [f"HF_HUB_OFFLINE=0 hf download Qwen/Qwen3-8B --local-dir {host.model}"]


DAMAGES = {
    "a shard cut short": (shard(missing=5), "bytes long"),
    "a pointer of Git LFS": (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "is Git LFS's pointer of "),
    "something else": (b"<html>404</html>", "does not begin as safetensors does"),
    "nothing": (b"", "does not begin as safetensors does"),
}  # fmt: skip


@pytest.mark.parametrize(("content", "says"), DAMAGES.values(), ids=DAMAGES)
def test_shards_that_are_not_whole(host, content, says):
    host.write_model()[0].write_bytes(content)
    text, _ = problem(host.check()[1], "files", "files_damaged")
    assert says in text


def test_a_folder_that_lacks_something(host):
    (host.model / "tokenizer.json").unlink()
    assert host.check()[1]["files"]["cause"] == "tokenizer_missing"
    for each in (*host.model.glob("*.safetensors"), host.model / "model.safetensors.index.json"):
        each.unlink()
    assert host.check()[1]["files"]["cause"] == "weights_missing"
    (host.model / "config.json").unlink()
    assert host.check()[1]["files"]["cause"] == "config_missing"
    found = host.check(model="/models/nowhere")[1]
    assert found["files"]["cause"] == "model_not_found"
    assert found["files"]["fixes"][0]["command"] == "ls -l /models"


def test_a_model_of_the_hub(host):
    """In the cache it is checked as a folder is; missing, it will be fetched; offline that is a problem."""
    snapshot = host.cached("Qwen/Qwen3-8B")
    assert host.check(model="Qwen/Qwen3-8B")[1]["files"]["status"] == "ok"
    next(snapshot.glob("*.safetensors")).unlink()
    status, found = host.check(model="Qwen/Qwen3-8B")
    assert (found["files"]["status"], found["token"]["status"]) == ("unknown", "unknown")
    assert status == (3 if found["disk"]["status"] == "problem" else 0)
    host.environment["HF_TOKEN"] = "hf_x"
    assert host.check(model="Qwen/Qwen3-8B")[1]["token"]["status"] == "ok"
    host.environment["HF_HUB_OFFLINE"] = "1"
    assert host.check(model="Qwen/Qwen3-8B")[1]["files"]["cause"] == "weights_missing"
    assert host.check(model="Qwen/Qwen3-0.6B")[1]["files"]["cause"] == "model_offline"


def mounted(size, at, then):
    """A command in a mount namespace of its own, with a tmpfs of that size."""
    script = f'mount -t tmpfs -o size={size} tmpfs "$0" && {then} exec "$@"'
    return ["unshare", "--mount", "sh", "-c", script, str(at)]


def test_a_disk_that_is_too_small(host):
    host.home.mkdir()
    snapshot = host.cached("Qwen/Qwen3-8B")
    next(snapshot.glob("*.safetensors")).unlink()
    copy = f'cp -r "{host.folder}/kept/." "$0" && '
    (host.folder / "kept").mkdir()
    subprocess.run(["cp", "-r", f"{host.home}/.", host.folder / "kept"], check=True)
    found = host.check(model="Qwen/Qwen3-8B", before=mounted("8m", host.home, copy))[1]
    text, commands = problem(found, "disk", "disk_full")
    assert text == f"15.0 GiB are to be fetched, 0.0 GiB are free in {host.home}/hub"
    assert commands[0] == "HF_HOME=/DISK vllm serve Qwen/Qwen3-8B"


def test_shared_memory_as_docker_makes_it(host):
    """A real /dev/shm of 64 MiB: too little for two ranks, and of no concern to one."""
    host.gpus(h100(), h100(1))
    before = mounted("64m", "/dev/shm", "")
    text, commands = problem(host.check("-tp", 2, before=before)[1], "shared memory", "shared_memory_small")  # fmt: skip
    assert text.startswith("64 of 64 MiB are free in /dev/shm, 2 ranks need about 180: ")
    assert commands[0].startswith("docker run --shm-size=8g")
    assert "shared memory" not in host.check(before=before)[1]
    assert host.check("-tp", 2)[1]["shared memory"]["status"] == "ok"


SETTINGS = {
    "longer than the model reads": (
        ["--max-model-len", "200k"], {}, "length", "context_length_exceeded", "--max-model-len 131072",
    ),
    "bfloat16 on a card without": (["--dtype", "bfloat16"], {"name": "Tesla T4"}, "dtype", "dtype_unsupported", "--dtype half"),
    "a share above one": (["--gpu-memory-utilization", "90"], {}, "flags", "wrong_flag", "--gpu-memory-utilization 0.9"),
    "no number": (["--max-num-seqs", "many1"], {}, "flags", "wrong_flag", None),
    "a card that fell off the bus": ([], {"error.nvmlDeviceGetMemoryInfo_v2": 15}, "gpus", "gpu_lost", None),
}  # fmt: skip


@pytest.mark.parametrize(("flags", "gpu", "check", "cause", "mends"), SETTINGS.values(), ids=SETTINGS)  # fmt: skip
def test_flags_that_vllm_would_refuse(host, flags, gpu, check, cause, mends):
    keys = {key: value for key, value in gpu.items() if "." in key}
    host.gpus(h100(**{key: value for key, value in gpu.items() if "." not in key}))
    if keys:
        host.stub.patch({f"error.{name}": 15 for name in ("nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetMemoryInfo", "nvmlDeviceGetUtilizationRates")})  # fmt: skip
    _, commands = problem(host.check(*flags)[1], check, cause)
    assert mends is None or mends in commands[0]


def test_it_becomes_vllm(host):
    """Arguments, environment, output and exit status are vLLM's own; what we say is on stderr."""
    host.environment["CUDA_VISIBLE_DEVICES"] = "0"
    done = host.run(host.command("--max-model-len", 8192, options=["--exec"]))
    assert done.returncode == 7
    assert done.stdout == f"vllm got serve {host.model} --max-model-len 8192\ngpus 0\n"
    assert "GO: " in done.stderr


def test_signals_are_vllms_own(host):
    """SIGTERM reaches it, and it ignores no signal that it would not ignore by itself."""
    host.install('trap "exit 42" TERM; grep SigIgn /proc/$$/status; while :; do sleep 0.1; done')
    with host.start(host.command("--max-model-len", 8192, options=["--exec"])) as server:
        ignored = server.stdout.readline().split()[-1]
        server.send_signal(signal.SIGTERM)
        assert server.wait(30) == 42
    assert int(ignored, 16) & (1 << (signal.SIGPIPE - 1)) == 0


def test_it_does_not_start_what_would_fail(host):
    done = host.run(host.command("-tp", 4, options=["--exec"]))
    assert (done.returncode, done.stdout) == (3, "")
    assert "NO-GO: " in done.stderr


def test_a_program_that_is_not_there(host):
    """It is a problem, with its cause and remedy, in each place of a command."""
    (host.folder / "venv" / "bin" / "vllm").unlink()
    status, found = host.check("--max-model-len", 8192)
    assert (status, found["command"]["cause"]) == (3, "command_missing")
    assert found["command"]["text"] == "'vllm' cannot be started: not in PATH"
    assert "install vLLM" in found["command"]["fixes"][0]["what"]
    done = host.run(host.command("--max-model-len", 8192, options=["--exec"]))
    assert (done.returncode, done.stdout) == (3, "")
    preflight = [*host.command()[: host.command().index("--") + 1]]
    for launch, name, why in (
        (["no-such-program"], "no-such-program", "not in PATH"),
        (["no-such-program", "vllm", "serve", "m"], "no-such-program", "not in PATH"),
        (["/no/vllm", "serve", "m"], "/no/vllm", "it is not an executable file"),
    ):
        done = host.run([*preflight, *launch])
        assert done.returncode == 3
        assert f"PROBLEM  command       '{name}' cannot be started: {why}\n" in done.stdout


def test_it_waits_for_a_dying_engine(host, left):
    """It says for whom, goes on as soon as the memory is free, and then starts vLLM."""
    server, (pid,) = left.server("VLLM::EngineCore")
    host.gpus(h100(processes={pid: 60 * GIB}))
    with host.start(host.command("--max-model-len", 8192, options=["--exec", "--wait-for-vram", 3600])) as waiting:  # fmt: skip
        line = waiting.stderr.readline()
        assert line.startswith("vllm-watch: waiting for GPU memory, ")
        assert f"process {pid} 'VLLM::EngineCore 600' with 60.00 GiB" in line
        for each in (server.pid, pid):
            subprocess.run(["kill", "-9", str(each)], check=True)
        assert waiting.wait(120) == 7
        assert "the memory is free after " in waiting.stderr.read()


def test_it_waits_no_longer_than_it_was_told(host, left):
    host.gpus(h100(processes={left.start("sleep", "600").pid: 60 * GIB}))
    done = host.run(host.command("--max-model-len", 8192, options=["--exec", "--wait-for-vram", 2]))
    assert (done.returncode, done.stdout) == (3, "")
    assert "waited in vain after " in done.stderr


def test_it_ends_on_sigterm_while_it_waits(host, left):
    """Also as a container's first process, for which SIGTERM does nothing by itself."""
    pid = left.start("sleep", "600").pid
    host.gpus(h100(processes={pid: 60 * GIB}), **{f"kept__{pid}": 1})
    command = host.command(options=["--exec", "--wait-for-vram", 3600])
    with host.start(["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", *command]) as outer:  # fmt: skip
        assert "waiting for GPU memory" in outer.stderr.readline()
        inner = Path(f"/proc/{outer.pid}/task/{outer.pid}/children").read_text().split()
        subprocess.run(["kill", "-TERM", *inner], check=True)
        assert outer.wait(30) == 143


def test_a_person_reads_lines(host):
    """A line for each finding, the commands below it, the end in one line, and no secret."""
    host.environment["CUDA_VISIBLE_DEVICES"] = ""
    done = host.run(host.command("--api-key", "sk-1", "--config", host.folder / "serve.yaml"))
    assert done.returncode == 2
    assert "serve.yaml" in done.stderr
    (host.folder / "serve.yaml").write_text("tensor-parallel-size: 2\nmax-model-len: 8192\n")
    host.environment.pop("CUDA_VISIBLE_DEVICES")
    done = host.run(host.command("--api-key", "sk-1", "--config", host.folder / "serve.yaml"))
    lines = done.stdout.splitlines()
    assert "PROBLEM  gpus          TP 2 wants 2 GPUs, 1 is visible" in lines
    assert any(line.startswith("         → share each layer among 1:  vllm serve ") for line in lines)  # fmt: skip
    assert lines[-1] == "NO-GO: 1 problem"
    assert "sk-1" not in done.stdout
