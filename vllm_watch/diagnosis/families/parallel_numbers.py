"""Extract numbers from error messages about parallelism."""

import math
import re

from vllm_watch.diagnosis.numbers import WHOLE
from vllm_watch.diagnosis.report import Fix
from vllm_watch.diagnosis.rule import Facts, Told

PARTS_MAX = 16_384
"""Maximum number of GPUs of an engine. Larger numbers come from damaged lines."""

_WORLD = re.compile(rf"World size \(({WHOLE})\) is larger than the number of available GPUs \(({WHOLE})\)")  # fmt: skip
_SIZE = re.compile(rf"[Tt]ensor[ _]parallel[ _]size ?[(=] ?({WHOLE})\)? (?:cannot be .{{0,60}}?GPUs \(?|but only )({WHOLE})")  # fmt: skip
_DIVIDES = re.compile(rf"\(?({WHOLE})\)? (?:must be divisible by tensor parallel size \(|is not divisible by )({WHOLE})")  # fmt: skip
_LOCAL = re.compile(rf"local_world_size \(({WHOLE})\) must be .{{0,60}}visible devices \(({WHOLE})\)")  # fmt: skip
_RANK = re.compile(rf"local rank ({WHOLE}) is out of bounds for ({WHOLE}) devices")
_GROUPS = re.compile(rf"= ({WHOLE}) is not divisible by weight quantization block_[nk] = ({WHOLE})")
_HEADS = re.compile(rf"\(({WHOLE})\) must be divisible by (?:the )?tensor[ -]parallel (?:world )?size \(({WHOLE})")  # fmt: skip
_BUNDLE = re.compile(r"\{'GPU': (\d{1,3}(?:\.\d)?)")
_ADDRESS = re.compile(r"(?:connect to|address of) (?:\[([^\]\s]{1,80})\]:|\(([\w.:-]{1,80}), ?)(\d{1,5})\b")  # fmt: skip
_PORT = re.compile(r"(?:'[^']*', |(?:[\d.]{7,15}|\]|(?<!\.p)[a-z*]):)(\d{2,5})\b\)?(?=[)':\]]|: |$)|[Pp]ort:? (\d{2,5})\b")  # fmt: skip


def too_few_gpus(text: str, facts: Facts) -> Told:
    """Return the numbers of requested and available GPUs."""
    if found := _RANK.search(text):
        return Told(f"Local rank {found[1]} needs {int(found[1]) + 1} devices, and the process has {found[2]}.")  # fmt: skip
    found = _WORLD.search(text) or _SIZE.search(text) or _LOCAL.search(text)
    if not found:
        return Told()
    wanted, there = found.groups()
    possible = _power_of_two(int(there))
    fix = Fix("if the model fits on fewer GPUs, ask for no more than there are", f"--tensor-parallel-size {possible}")  # fmt: skip
    said = f"{wanted} GPUs were asked for, {there} are visible."
    alone = found.re is _SIZE or facts.get("pipeline_parallel_size", 1) == 1
    return Told(said, (fix,) if possible and alone else ())


def not_dividing(text: str, facts: Facts) -> Told:
    """Suggest the largest smaller power of two that divides this dimension."""
    if groups := _GROUPS.search(text):
        return _whole_groups(int(groups[1]), int(groups[2]), facts.get("tensor_parallel_size"))
    found = _HEADS.search(text) or _DIVIDES.search(text)
    if not found:
        return Told()
    dimension, parts = (int(each) for each in found.groups())
    if not 0 < parts <= min(dimension, PARTS_MAX):
        return Told(f"{dimension} cannot be cut into {parts}.")
    said = f"{dimension} is not a multiple of {parts}."
    possible = _power_of_two(math.gcd(dimension, _power_of_two(parts - 1)))
    if facts.get("tensor_parallel_size", parts) != parts or not possible:
        return Told(said)
    return Told(said, (Fix("if the model fits on fewer GPUs, take a size that divides", f"--tensor-parallel-size {possible}"),))  # fmt: skip


def _whole_groups(part: int, group: int, size: str | float | None) -> Told:
    if not 0 < part <= group * PARTS_MAX or not group:
        return Told()
    less = group // math.gcd(part, group)
    said = f"Each GPU would get {part}, which is not a multiple of {group}"
    if size is None:
        fix = Fix(f"divide --tensor-parallel-size by {less}, if it can be")
        return Told(f"{said}; a tensor parallel size {less} times smaller gives a multiple.", (fix,))  # fmt: skip
    if not isinstance(size, int) or size % less:
        return Told(f"{said}, and no smaller tensor parallel size gives one.")
    return Told(f"{said}.", (Fix("take a size that gives one", f"--tensor-parallel-size {size // less}"),))  # fmt: skip


def _power_of_two(most: int) -> int:
    return 1 << most.bit_length() - 1 if most > 0 else 0


def rendezvous(text: str, facts: Facts) -> Told:
    """Return the address that could not be reached."""
    found = _ADDRESS.search(text)
    if found is None:
        return Told()
    host, number = found[1] or found[2], found[3]
    fix = Fix("test the address from the host that reports the error", f"nc -vz {host} {number}")
    return Told(f"The address is {host}, port {number}.", (fix,))


def ray_status(text: str, facts: Facts) -> Told:
    """Compare the GPUs of an idle Ray cluster with the requested ones."""
    idle, wanted = facts.get("ray_gpus_idle"), sum(map(float, _BUNDLE.findall(text)))
    if not isinstance(idle, float) or wanted <= idle:
        return Told()
    fix = Fix("check that each host is in the list, and that Ray has its GPUs under the name GPU: if another name stands there (such as TPU), start Ray on that host with their number", "ray status -v; ray start --num-gpus=N …")  # fmt: skip
    return Told(f"The engine asks for {wanted:g} GPUs, and Ray has registered only {idle:g}.", (fix,))  # fmt: skip


def port(text: str, facts: Facts) -> Told:
    """Return the port."""
    found = _PORT.search(text)
    if not found:
        return Told()
    number = found[1] or found[2]
    return Told(f"Port {number}.", (Fix("see who listens there", f"ss -ltnp 'sport = :{number}'"),))
