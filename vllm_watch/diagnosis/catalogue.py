"""All rules and failure classes, joined from the tables in `families/`."""

from vllm_watch.diagnosis.families import (
    compiling,
    lora,
    memory,
    model,
    packages,
    parallel,
    serving,
    software,
    transfer,
    unclassified,
)
from vllm_watch.diagnosis.rule import Failure

_FAMILIES = (memory, parallel, transfer, model, lora, software, compiling, packages, serving)

RULES = tuple(each for family in (*_FAMILIES, unclassified) for each in family.RULES)

FAILURES: dict[str, Failure] = {
    failure.slug: failure for family in _FAMILIES for failure in family.FAILURES
}
