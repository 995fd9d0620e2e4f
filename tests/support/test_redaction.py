"""Command lines of strangers, in which secrets stand in every form that vLLM takes."""

import pytest

from vllm_watch.support.redaction import HIDDEN, safe_arguments

COMMANDS: dict[str, tuple[str, str]] = {
    "none": ("vllm serve m --port 8000", "vllm serve m --port 8000"),
    "one": ("vllm serve m --api-key a --port 8000", f"vllm serve m --api-key {HIDDEN} --port 8000"),
    "several": ("vllm --api-key a b c -tp 2 d", f"vllm --api-key {HIDDEN} {HIDDEN} {HIDDEN} -tp 2 d"),
    "with =": ("vllm --api-key=a m", f"vllm --api-key={HIDDEN} m"),
    "at the end": ("vllm --api-key", "vllm --api-key"),
    "two in a row": ("vllm --api-key a --hf-token b", f"vllm --api-key {HIDDEN} --hf-token {HIDDEN}"),
    "a variable before it": ("env API_KEY=a vllm", f"env API_KEY={HIDDEN} vllm"),
    "a word that is named like one": ("vllm token m", "vllm token m"),
    "by its shape": (f"vllm sk-{'a' * 20}", f"vllm {HIDDEN}"),
}  # fmt: skip


@pytest.mark.parametrize(("command", "shown"), COMMANDS.values(), ids=COMMANDS)
def test_arguments_that_are_secrets_are_hidden(command: str, shown: str) -> None:
    """An option's values are, until the next option begins; what else stands there is shown as it is."""
    assert " ".join(safe_arguments(tuple(command.split(" ")))) == shown
