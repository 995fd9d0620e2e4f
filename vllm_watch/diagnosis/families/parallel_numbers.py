"""Numbers of parallelism messages: GPUs, sizes that divide, ports."""

import re

from vllm_watch.diagnosis.numbers import WHOLE
from vllm_watch.diagnosis.report import Fix
from vllm_watch.diagnosis.rule import Facts, Told

PARTS_MAX = 16_384
"""More GPUs than one engine spans; a larger number is not a number of GPUs."""

_WORLD = re.compile(
    rf"World size \(({WHOLE})\) is larger than the number of available GPUs \(({WHOLE})\)"
)
_SIZE = re.compile(
    rf"[Tt]ensor[ _]parallel[ _]size ?[(=] ?({WHOLE})\)? (?:cannot be .{{0,60}}?GPUs \(?|but only |exceeds available GPUs \()({WHOLE})"
)
_DIVIDES = re.compile(
    rf"\(?({WHOLE})\)? (?:must be divisible by tensor parallel size \(|is not divisible by )({WHOLE})"
)
_HEADS = re.compile(
    rf"\(({WHOLE})\) must be divisible by (?:the )?tensor[ -]parallel (?:world )?size \(({WHOLE})"
)
_PORT = re.compile(r"(?:'[^']*', |:)(\d{2,5})\b\)?(?=[)':\]]|: |$)|[Pp]ort (\d{2,5})\b")


def too_few_gpus(text: str, facts: Facts) -> Told:
    """Return the requested and the available GPUs."""
    found = _WORLD.search(text) or _SIZE.search(text)
    if not found:
        return Told()
    wanted, there = found.groups()
    fixes = (
        (Fix("ask for the existing resources", f"--tensor-parallel-size {there}"),)
        if there != "0"
        else ()
    )
    return Told(f"{wanted} GPUs were asked for, {there} are visible.", fixes)


def not_dividing(text: str, facts: Facts) -> Told:
    """Return the sizes that divide this dimension."""
    found = _HEADS.search(text) or _DIVIDES.search(text)
    if not found:
        return Told()
    dimension, parts = (int(each) for each in found.groups())
    if not 0 < parts <= min(dimension, PARTS_MAX):
        return Told(f"{dimension} cannot be cut into {parts}.")
    possible = max(each for each in range(1, parts) if dimension % each == 0) if parts > 1 else 1
    said = f"{dimension} is not a multiple of {parts}; {possible} is the next smaller that divides."
    return Told(said, (Fix("take a size that divides", f"--tensor-parallel-size {possible}"),))


def port(text: str, facts: Facts) -> Told:
    """Return the port."""
    found = _PORT.search(text)
    if not found:
        return Told()
    number = found[1] or found[2]
    return Told(f"Port {number}.", (Fix("see who listens there", f"ss -ltnp 'sport = :{number}'"),))
