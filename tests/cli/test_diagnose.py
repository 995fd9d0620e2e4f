"""`vllm-watch diagnose`: what a person reads, from a file, packed or not, and what it says of bad input."""

import gzip

from vllm_watch.__main__ import main

LOG = """\
(APIServer pid=9) INFO 09-10 23:26:12 [api_server.py:1805] vLLM API server version 0.10.1.1
(APIServer pid=9) INFO 09-10 23:26:12 [utils.py:326] non-default args: {'model': 'org/m', 'max_model_len': 118000}
ERROR 07-11 06:23:05 [core.py:390] ValueError: To serve at least one request with the models's max seq len (118000), (6.30 GiB KV cache is needed, which is larger than the available KV cache memory (6.11 GiB). Based on the available memory, the estimated maximum model length is 114432.
ERROR 07-11 06:23:06 [core.py:395] RuntimeError: Engine core initialization failed. See root cause above.
"""

SAID = """\
The KV cache is smaller than one request of the full context length (kv_cache_too_small, confidence 0.95)

  line 3: ERROR 07-11 06:23:05 [core.py:390] ValueError: To serve at least one request with the models's max seq len (118000), (6.30 GiB KV cache is needed, which is larger than the available KV cache memory (6.11 GiB). Based on the available memory, the estimated maximum model length is 114432.

118,000 tokens need 6.30 GiB of KV cache; 6.11 GiB are left. About 114,432 tokens would have fitted. After weights, activations and CUDA graphs too little memory is left for one request of max_model_len tokens.

what to do:
  - allow no longer requests than fit
      --max-model-len 114432
  - store the KV cache in 8 bits: twice the tokens
      --kv-cache-dtype fp8
  - give vLLM more of the GPU, not above 0.95
      --gpu-memory-utilization 0.95
  - spread the model over more GPUs
      --tensor-parallel-size 2

what the log says of the engine:
  engine                  V1
  max_model_len           118000
  model                   org/m
  vllm_version            0.10.1.1
"""


def run(capsys, *arguments):
    status = main(["diagnose", *map(str, arguments)])
    out, err = capsys.readouterr()
    return status, out, err


def test_as_text(tmp_path, capsys):
    """The finding, its line, why, what to do with the numbers of this log, and the facts; nothing else."""
    file = tmp_path / "vllm.log"
    file.write_text(LOG)
    assert run(capsys, file) == (1, SAID.replace("  engine                  V1\n", ""), "")


def test_packed(tmp_path, capsys):
    """Logs that logrotate packed are read as they are."""
    file = tmp_path / "vllm.log.1.gz"
    file.write_bytes(gzip.compress(LOG.encode()))
    status, out, _ = run(capsys, file)
    assert (status, out.splitlines()[0]) == (1, SAID.splitlines()[0])


def test_packed_and_damaged(tmp_path, capsys):
    """A gzip file that is cut off is named as such."""
    file = tmp_path / "vllm.log.1.gz"
    file.write_bytes(gzip.compress(LOG.encode() * 100)[:-20])
    status, out, err = run(capsys, file)
    assert (status, out) == (2, "")
    assert "is damaged gzip" in err


def test_a_healthy_start(tmp_path, capsys):
    """No failure is exit status 0, and there is nothing to do."""
    file = tmp_path / "vllm.log"
    file.write_text(LOG.splitlines()[0] + "\nINFO:     Application startup complete.\n")
    status, out, _ = run(capsys, file)
    assert status == 0
    assert out.startswith("Nothing failed (healthy, confidence 0.9)\n\nIt came up and works.\n")
    assert "what to do" not in out


def test_no_such_file(tmp_path, capsys):
    """The cause and the remedy."""
    status, out, err = run(capsys, tmp_path / "absent.log")
    assert (status, out) == (2, "")
    assert "absent.log cannot be read: No such file or directory" in err


def test_an_empty_file(tmp_path, capsys):
    """That nothing was written is said."""
    file = tmp_path / "vllm.log"
    file.touch()
    assert "It is empty" in run(capsys, file)[1]
