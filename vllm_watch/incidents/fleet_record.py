"""Defines the records of the common incident of silent targets."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from vllm_watch.detectors.base import Evidence
from vllm_watch.incidents import incident as record
from vllm_watch.incidents.incident import Incident
from vllm_watch.signals import stored

LATE_SECONDS = 2.0
"""A poll that starts at least this many seconds late shows a delayed watcher. Most polls start
within milliseconds."""

NAMES_SHOWN = 8
"""A text names at most this many targets or hosts."""


@dataclass(slots=True)
class Target:
    """Results of one target's last scrapes."""

    host: str
    answered_s: float | None = None
    silent_s: float | None = None  # first poll without an answer
    fell_s: float = 0.0  # earliest possible start of the silence
    outcome: str = "not scraped yet"
    dead: bool = False


@dataclass(slots=True)
class Common:
    """The open incident of all silent targets."""

    incident: Incident
    moment_s: float  # start of the first silence, or of the incident
    unseen: str  # scrape outcome, or "" if a recent answer preceded the silence
    known: int  # targets with a recent answer, and members without one
    members: dict[str, None]
    back_s: float | None = None  # when most members answered again
    held: dict[str, None] = field(default_factory=dict)  # IDs of the linked incidents

    def export_state(self) -> dict[str, Any]:
        """Leave out `back_s`, because recovery must be seen again."""
        return {
            "incident": record.export_state(self.incident), "moment_s": self.moment_s, "unseen": self.unseen,
            "known": self.known, "members": list(self.members), "held": list(self.held),
        }  # fmt: skip

    @classmethod
    def restored(cls, state: stored.Stored) -> "Common":
        return cls(
            record.restore(state["incident"]), stored.number(state["moment_s"]), stored.text(state["unseen"]),
            stored.count(state["known"]), dict.fromkeys(stored.texts(state["members"])),
            held=dict.fromkeys(stored.texts(state["held"])),
        )  # fmt: skip


def described(
    common: Common, members: Mapping[str, Target], others: Sequence[Target], late_s: float, t: float
) -> Incident:
    """Return the common incident with its texts. `others` are targets that answer."""
    how = _counted(each.outcome for each in members.values())
    unwatched = (each.fell_s < (each.silent_s or 0.0) for each in members.values())
    fell = (
        "have not answered since the watcher started"
        if common.unseen or all(unwatched)
        else "fell silent within a minute"
    )
    return replace(
        common.incident,
        summary=f"{len(members)} of {common.known} targets {fell} ({how}): most likely a shared "
        "cause, this watcher's host or network included",
        evidence_for=_evidence_for(members, common.known, how, late_s),
        evidence_against=_evidence_against(list(members.values()), others),
        related=tuple(common.held),
        updated_t=t,
    )


def _evidence_for(
    members: Mapping[str, Target], known: int, how: str, late_s: float
) -> tuple[Evidence, ...]:
    hosts = sorted({each.host for each in members.values() if each.host})
    shown = ", ".join(list(members)[:NAMES_SHOWN]) + (", …" if len(members) > NAMES_SHOWN else "")
    where = (
        f"all of them are on {hosts[0]}: it may be that host, or the network to it"
        if len(hosts) == 1
        else f"they are on {len(hosts)} hosts, which share only the network to them"
    )
    found = [
        Evidence(
            name="targets_silent", value=float(len(members)), expected=0.0,
            text=f"{len(members)} of the {known} targets that had answered: {shown}",
        ),
        Evidence(name="outcomes", value=how, text=f"how their last scrapes ended: {how}"),
        Evidence(name="hosts", value=float(len(hosts)), text=where),
    ]  # fmt: skip
    if late_s >= LATE_SECONDS:
        text = f"vllm-watch itself was delayed: a scrape began {late_s:.0f} s later than planned"
        found.append(
            Evidence(name="watcher_late", value=round(late_s, 1), unit="s", expected=0.0, text=text)
        )
    return tuple(found)


def _evidence_against(members: Sequence[Target], others: Sequence[Target]) -> tuple[Evidence, ...]:
    found = []
    if all(each.outcome == "refused" for each in members):
        text = "every connection is refused: the hosts are reachable, so the servers or a proxy before them stopped"
        found.append(Evidence(name="refused", value=float(len(members)), text=text))
    if others:
        same = {each.host for each in members} & {each.host for each in others}
        where = (
            f", some of them on the same hosts ({', '.join(sorted(same)[:NAMES_SHOWN])})"
            if same
            else ""
        )
        text = f"{len(others)} targets still answer{where}"
        found.append(
            Evidence(name="targets_answering", value=float(len(others)), expected=0.0, text=text)
        )
    return tuple(found)


def _counted(words: Iterable[str]) -> str:
    return ", ".join(f"{count} {word}" for word, count in Counter(words).most_common())
