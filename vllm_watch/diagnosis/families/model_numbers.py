"""Extract flags and ranks from error messages."""

import re

from vllm_watch.diagnosis.numbers import WHOLE
from vllm_watch.diagnosis.report import Fix
from vllm_watch.diagnosis.rule import Facts, Told
from vllm_watch.support import vllm_flags
from vllm_watch.support.vllm_flags import Standing

_RANK = re.compile(rf"rank \(?({WHOLE})\)? is greater than max_lora_rank")
_SHAPES = re.compile(rf"load weights? (?:of size )?\(?torch\.Size\(\[({WHOLE}), 1\]\)\)? ?(?:to a|into) parameter (?:of size )?\(?torch\.Size\(\[({WHOLE}), ({WHOLE})\]\)")  # fmt: skip
_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
"""The values that --max-lora-rank takes (vllm/config/lora.py)."""

_FLAGS = re.compile(r"unrecognized arguments: *(.{1,400})")
_VALUE = re.compile(r"['\"]?[{\[].*[}\]]['\"]?")
"""A JSON value, which may contain words with dashes."""

_AMBIGUOUS = re.compile(r"ambiguous option: (\S{1,80}) could match (.{1,300})")
_FLAG = re.compile(r"--[A-Za-z]")
_ONE_DASH = re.compile(r"-[a-z]{2}")
_KEYWORD = re.compile(r"unexpected keyword argument '(\w{1,80})'")
_SAMPLING = frozenset(("--temperature", "--top-p", "--top-k", "--min-p", "--max-tokens", "--repetition-penalty"))  # fmt: skip


def lora(text: str, facts: Facts) -> Told:
    """Suggest a sufficient LoRA rank."""
    found = _RANK.search(text)
    if not found:
        return Told()
    wanted = int(found[1])
    enough = next((each for each in _RANKS if each >= wanted), None)
    if enough is None:
        return Told(f"Rank {wanted} is above vLLM's limit ({_RANKS[-1]}).")
    return Told(f"Its rank is {wanted}.", (Fix("allow its rank", f"--max-lora-rank {enough}"),))


def is_packed(text: str) -> bool:
    """Return True if the weight is the parameter in 4-bit form."""
    found = _SHAPES.search(text)
    return found is not None and int(found[1]) * 2 == int(found[2]) * int(found[3])


def unknown_flag(text: str, facts: Facts) -> Told:
    """Return the unknown flags and their replacements."""
    if found := _KEYWORD.search(text):
        fix = Fix(f"drop {found[1]}, or check its spelling")
        return Told(f"The argument is {found[1]}.", (fix,))
    if found := _AMBIGUOUS.search(text):
        return Told(f"{found[1]} is short for several flags.", (Fix(f"write one of them in full: {found[2]}"),))  # fmt: skip
    found = _FLAGS.search(text)
    words = _VALUE.sub(" ", found[1]).split() if found else []
    flags = [each.partition("=")[0] for each in words if _FLAG.match(each)]
    dashed = [each.partition("=")[0] for each in words if _ONE_DASH.match(each)]
    dashed = [each for each in dashed if each.lstrip("-") in vllm_flags.table()[0]]
    if dashed:
        fixes = (Fix(f"write -{each}: it has two dashes") for each in dashed)
        return Told(f"It does not know {', '.join(dashed)}.", tuple(fixes))
    # If the first unknown word is not a flag, the words after it are part of the mistake, even flags.
    if not flags or words[0][0] != "-":
        positional = " ".join(words[:3])
        if "api_server.py: error:" in text:  # takes only flags, unlike `vllm serve`
            return Told(f"{positional} is not a flag, and this program takes only flags.", (Fix("if it is the model, name it by flag", "--model MODEL"),))  # fmt: skip
        return Told(
            f"{positional} is not a flag, and nothing that this command takes there.",
            (Fix("give the model once; the official image already runs vllm serve, so leave those words out of its arguments"),),
        )  # fmt: skip
    return Told(f"It does not know {', '.join(flags)}.", tuple(_flag_fix(each, facts) for each in flags))  # fmt: skip


def _flag_fix(flag: str, facts: Facts) -> Fix:
    if flag in _SAMPLING:
        return Fix(f"drop {flag}: it is a setting of requests (or of --override-generation-config), not of the server")  # fmt: skip
    name, version = flag.lstrip("-"), facts.get("vllm_version")
    flags, releases = vllm_flags.table()
    known = flags.get(name.removeprefix("no-"))
    found = vllm_flags.look_up(name, None if version is None else str(version))
    if known is None:
        meant = found.nearest or next((each for each in flags if each.startswith(name)), None)
        what = f"write --{meant}" if meant else f"drop {flag}, or check its spelling"
        return Fix(f"{what}: no release of vLLM has {flag}", "vllm serve --help=all")
    instead = f" ({found.instead})" if found.instead else ""
    if found.standing is Standing.REMOVED:
        return Fix(f"drop {flag}: removed in vLLM {found.removed_in}{instead}")
    if found.standing is Standing.NOT_YET:
        return Fix(f"drop {flag}: it comes with vLLM {found.releases}")
    if version is not None or all(map(known.within, releases)):
        return Fix(f"see how {flag} is written: vLLM has it, but not here (quoted as one word with its value, or of another command)")  # fmt: skip
    first = ".".join(map(str, known.spans[0][0]))
    # This release is older, or the word was not read as a flag.
    if len(known.spans) == 1 and known.within(releases[-1]):
        return Fix(f"vLLM has {flag} from {first} on: drop it if this release is older, else see how it is written (quoted as one word with its value, or of another command)")  # fmt: skip
    return Fix(f"drop {flag}: vLLM {found.releases or f'from {first} on'} has it, and this release does not{instead}")  # fmt: skip
