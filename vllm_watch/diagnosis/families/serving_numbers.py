"""Extract Xids and request lengths from error messages."""

import re

from vllm_watch.diagnosis.numbers import WHOLE
from vllm_watch.diagnosis.report import Fix
from vllm_watch.diagnosis.rule import Facts, Told

_XID = re.compile(r"[Xx][Ii][Dd][^:]{0,40}?:? ?(\d{1,3})\b")
_BEFORE = re.compile(r"caused by previous Xid (\d{1,3})\b")
_NVRM = re.compile(r"Xid \((?:PCI:)?[^)]{0,40}\): (\d{1,3})\b")
_LONG = re.compile(rf"maximum context length is ({WHOLE}) tokens.{{0,40}}?requested (?:about )?({WHOLE}) (?:output )?tokens")  # fmt: skip
_PROMPT = re.compile(rf"prompt contains (?:at least )?({WHOLE}) input tokens")

# Xids seen on inference hosts. The meanings are from NVIDIA's catalogue.
MEANING = {
    13: "a kernel's exception: usually software",
    31: "a kernel's page fault: usually software",
    43: "a program's fault ended its channel: usually software",
    45: "work was cancelled, as after another error or a kill",
    48: "a double-bit ECC error: hardware",
    62: "an internal fault of the GPU: reset it",
    63: "a memory row was remapped: reset when idle",
    64: "remapping a memory row failed: hardware",
    69: "a graphics engine exception",
    74: "an NVLink error: links or hardware",
    79: "the GPU has fallen off the bus: reboot, then hardware",
    92: "many single-bit ECC errors",
    94: "a contained ECC error: restart the program",
    95: "an uncontained ECC error: reset the GPU",
    109: "a context switch timed out: the GPU hung",
    119: "the GPU's system processor timed out: reset, renew the driver",
    120: "the GPU's system processor failed: reset, renew the driver",
    154: "the driver asks for a recovery: the line names it (reset, reboot, drain)",
    **dict.fromkeys(range(144, 151), "an NVLink error: links, switches or hardware"),
}


def xid(text: str, facts: Facts) -> Told:
    """Return the Xid and its meaning."""
    if "SXid" in text:
        return Told("An SXid is of an NVSwitch, not of a GPU.")
    limit = facts.get("config_max_model_len")
    if limit and "Assertion `" in text:
        return Told("", (Fix("allow no longer requests than the model's config does", f"--max-model-len {limit}"),))  # fmt: skip
    found = _BEFORE.search(text) or _NVRM.search(text) or _XID.search(text)
    if not found:
        return Told()
    number = int(found[1])
    meaning = MEANING.get(number, "see NVIDIA's catalogue of Xid errors")
    return Told(f"Xid {number}: {meaning}.")


def context(text: str, facts: Facts) -> Told:
    """Return the length of the request and the limit."""
    found = _LONG.search(text)
    if not found:
        return Told()
    limit, wanted = found.groups()
    prompt = _PROMPT.search(text)
    if prompt:
        left = max(0, int(limit) - int(prompt[1]))
        said = f"{prompt[1]} tokens of prompt and {wanted} of output, of at most {limit}."
        fix = Fix("ask for no more than is left", f"max_tokens={left}")
        return Told(said, (fix,) if left else ())
    return Told(f"{wanted} tokens of at most {limit}.")
