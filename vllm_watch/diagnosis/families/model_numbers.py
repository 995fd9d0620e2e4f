"""What a message about flags and adapters names: which flags, which rank."""

import re

from vllm_watch.diagnosis.numbers import WHOLE
from vllm_watch.diagnosis.report import Fix
from vllm_watch.diagnosis.rule import Facts, Told

_RANK = re.compile(rf"rank \(?({WHOLE})\)? is greater than max_lora_rank")
_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
"""The values that --max-lora-rank takes (vllm/config/lora.py); 1 is among them, too."""

_FLAGS = re.compile(r"unrecognized arguments: *(.{1,400})")
_KEYWORD = re.compile(r"unexpected keyword argument '(\w{1,80})'")
_SAMPLING = frozenset(("--temperature", "--top-p", "--top-k", "--min-p", "--max-tokens", "--repetition-penalty"))  # fmt: skip


def lora(text: str, facts: Facts) -> Told:
    """The rank that would do."""
    found = _RANK.search(text)
    if not found:
        return Told()
    wanted = int(found[1])
    enough = next((each for each in _RANKS if each >= wanted), None)
    if enough is None:
        return Told(f"Rank {wanted} is above what vLLM takes ({_RANKS[-1]}).")
    return Told(f"Its rank is {wanted}.", (Fix("allow its rank", f"--max-lora-rank {enough}"),))


def unknown_flag(text: str, facts: Facts) -> Told:
    """Which flag, and what it may be instead."""
    if found := _KEYWORD.search(text):
        return Told(
            f"The argument is {found[1]}.", (Fix(f"drop {found[1]}, or check its spelling"),)
        )
    found = _FLAGS.search(text)
    words = found[1].split() if found else []
    flags = [each.partition("=")[0] for each in words if each.startswith("--")]
    if not flags:
        positional = " ".join(words[:3])
        return Told(
            f"{positional} is not a flag, and nothing that this command takes there.",
            (Fix("give the model once; the official image already runs vllm serve, so leave those words out of its arguments"),),
        )  # fmt: skip
    return Told(f"It does not know {', '.join(flags)}.", tuple(_flag_fix(each, facts) for each in flags))  # fmt: skip


def _flag_fix(flag: str, facts: Facts) -> Fix:
    if flag in _SAMPLING:
        return Fix(f"drop {flag}: it is a setting of requests (or of --override-generation-config), not of the server")  # fmt: skip
    version = facts.get("vllm_version")
    of = f"vLLM {version}" if version else "this version"
    return Fix(f"drop {flag}, or check its spelling: it is not a flag of {of}", "vllm serve --help=all")  # fmt: skip
