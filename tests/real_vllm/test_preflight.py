"""`preflight` asks the real vLLM's parser, and reports its sentences."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from tests.real_vllm.server import find_venv
from vllm_watch.cli.helpers.launch import gather
from vllm_watch.cli.helpers.launch_software import ask_vllm
from vllm_watch.preflight.check_flags import check_names, check_vllm_parser
from vllm_watch.preflight.facts import OK, PROBLEM

pytestmark = pytest.mark.real_vllm

# Flags beside a model, and vLLM's sentence; None if it accepts them.
COMMANDS = (
    (["--max-model-len", "1k", "-tp", "2", "--enable-prefix-caching", "--quantization", "fp8", "--reasoning-parser", "qwen3", "--attention-backend", "FLASH_ATTN"], None),
    (["--kv-cache-dtype", "fp9"], "argument --kv-cache-dtype: invalid choice: 'fp9'"),
    (["--enable-auto-tool-choice", "--tool-call-parser", "bogus"], "invalid tool call parser: bogus"),
    (["--reasoning-parser", "bogus"], "reasoning parser 'bogus' not found"),
    (["--kv-transfer-config", '{"kv_connector":"NixlConnector","api_key":"plainword"}'], "argument --kv-transfer-config: "),
)  # fmt: skip


@pytest.mark.parametrize(("flags", "sentence"), COMMANDS, ids=[row[0][0] for row in COMMANDS])
def test_its_own_parser(flags: list[str], sentence: str | None, tmp_path: Path) -> None:
    """Good flags of a GPU are accepted on a host without one. A value that the table of releases lacks is reported once."""
    words = [str(find_venv() / "bin" / "vllm"), "serve", str(tmp_path), *flags]
    facts = gather(words, dict(os.environ))
    facts = replace(facts, asked=ask_vllm(facts))
    assert facts.asked is not None
    assert (facts.asked.refusal is None) == (sentence is None)
    assert sentence is None or sentence in (facts.asked.refusal or "")
    (finding,) = (*check_names(facts), *check_vllm_parser(facts))
    assert finding.status == (OK if sentence is None else PROBLEM), finding
    assert "plainword" not in finding.text
