"""All rules and failure classes, joined from the tables in `families/`."""

from vllm_watch.diagnosis.families import memory, model, parallel, serving, software
from vllm_watch.diagnosis.rule import Failure

_FAMILIES = (memory, parallel, model, software, serving)

RULES = tuple(each for family in _FAMILIES for each in family.RULES)

FAILURES: dict[str, Failure] = {
    failure.slug: failure for family in _FAMILIES for failure in family.FAILURES
}


def is_deterministic(failure: str) -> bool:
    """Would a start that failed so fail the same way again, with nothing changed?

    False for what is not known, and for what may mend itself (a port that is freed, memory that another
    process gives back): the restart guard refuses only what cannot succeed.
    """
    known = FAILURES.get(failure)
    return known is not None and known.deterministic
