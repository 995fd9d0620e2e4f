"""`vllm-watch diagnose`: what a person reads, from a file, packed or not, and what it says of bad input."""

import gzip
import json

import pytest

from vllm_watch.__main__ import main

LOG = """\
(APIServer pid=9) INFO 09-10 23:26:12 [api_server.py:1805] vLLM API server version 0.10.1.1
(APIServer pid=9) INFO 09-10 23:26:12 [utils.py:326] non-default args: {'model': 'org/m', 'max_model_len': 118000}
ERROR 07-11 06:23:05 [core.py:390] EngineCore failed to start.
ERROR 07-11 06:23:05 [core.py:390] ValueError: max_num_seqs (1024) exceeds available Mamba cache blocks (600).
ERROR 07-11 06:23:06 [core.py:395] RuntimeError: Engine core initialization failed. See root cause above.
"""

SAID = """\
Fewer state blocks fit than --max-num-seqs requires (confidence 0.8)

  line 4: ERROR 07-11 06:23:05 [core.py:390] ValueError: max_num_seqs (1024) exceeds available Mamba cache blocks (600).

1024 concurrent requests were configured, and 600 blocks fit. In general: A hybrid model (Mamba, linear attention) keeps one state block per running request, regardless of the request's length; the remaining memory holds fewer.

what to do, if this fits:
  - limit concurrent requests to the number of blocks
      --max-num-seqs 600

facts about the engine from the log:
  engine                  V1
  max_model_len           118000
  model                   org/m
  vllm_version            0.10.1.1

class: kv_cache_too_small (the memory left for the KV cache is too small)
"""


def run(capsys, *arguments):
    status = main(["diagnose", *map(str, arguments)])
    out, err = capsys.readouterr()
    return status, out, err


def test_as_text(tmp_path, capsys):
    """The finding, its line, why, what to do with the numbers of this log, and the facts; nothing else."""
    file = tmp_path / "vllm.log"
    file.write_text(LOG)
    assert run(capsys, file) == (1, SAID, "")


def test_a_check_comes_before_a_change(tmp_path, capsys):
    """What only reads stands first, and what changes something is bound to what it shows."""
    file = tmp_path / "vllm.log"
    file.write_text("ValueError: Free memory on device (3.1/79.0 GiB) on startup is less than desired GPU memory utilization (0.9, 71.1 GiB).\n")  # fmt: skip
    _, out, _ = run(capsys, file)
    before, _, after = out.partition("then, if that confirms it:\n")
    assert "check first:\n  - see which processes hold memory on this GPU\n" in before
    assert after.startswith("  - ")


def test_packed(tmp_path, capsys):
    """Logs that logrotate packed are read as they are."""
    file = tmp_path / "vllm.log.1.gz"
    file.write_bytes(gzip.compress(LOG.encode()))
    status, out, _ = run(capsys, file)
    assert (status, out.splitlines()[0]) == (1, SAID.splitlines()[0])


@pytest.mark.parametrize(
    ("text", "status", "failure"),
    [
        ("RuntimeError: CUDA error: out of memory\n", 1, "out_of_memory"),
        ("Cannot split tensors evenly. tensor_parallel_size=4 but only 2 GPUs available", 1, "tp_exceeds_gpus"),
        ("OSError: org/m is not a local folder and is not a valid model identifier on Hugging Face", 1, "hf_not_found_or_offline"),
        ("ZeroDivisionError: division by zero\n", 1, "unknown"),
        ("[   12.345678] NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.\n", 1, "xid_or_gpu_lost"),
        ("[   12.345678] usb 1-1: new high-speed USB device number 2\n", 0, "healthy"),
        ("Dear diary,\nERROR in my ways today: none.\n", 2, "not_a_vllm_log"),
        ("\x00\x01\x02" * 50, 2, "not_a_vllm_log"),
    ],
)  # fmt: skip
def test_the_exit_status(tmp_path, capsys, text, status, failure):
    """1: an error is found, known or not; 0: none; 2: it is not a log. A single line is judged as one."""
    file = tmp_path / "vllm.log"
    file.write_text(text)
    assert (run(capsys, file)[0], json.loads(run(capsys, file, "--json")[1])["class"]) == (
        status,
        failure,
    )
