"""The restart journal: attempts, operators' actions, and standing entries such as a pause.

Each write is on disk before it returns. A failed write or read raises JournalError.
"""

import contextlib
import sqlite3
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from vllm_watch.errors import JournalError, StateError
from vllm_watch.state import file, seal
from vllm_watch.state.attempt import Attempt
from vllm_watch.state.schema import packed, unpacked
from vllm_watch.state.worker import Worker

_T = TypeVar("_T")

ANSWER_SECONDS = 10.0
"""One row must be written within this many seconds. A slower disk is not reliable."""

KEPT_SECONDS = 400 * 86400.0
"""Rows are kept for this long. An audit requires a year and a month."""

KEPT_MAX = 20_000
"""At most this many attempts and this many actions are kept, 1 KB each."""

LOST = "history_lost"
"""Standing entry: records were lost. The spent budget is unknown until a person accepts the loss."""

_BEGUN = "begun"
"""Standing entry with this file's creation time."""


def approval(incident_id: str, target: str) -> str:
    """Return the name of an approval's standing entry."""
    return f"approval {incident_id} {target}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A request or change, with its result."""

    t: float
    actor: str
    source: str  # address, "cli", "schedule", "alertmanager" or "watcher"
    action: (
        str  # "restart", "approve", "silence", "pause", "resume", "decision", "reload", "reclaim_…"
    )
    target: str = ""
    reason: str = ""
    before: str = ""
    after: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempted(Entry):
    """A restart attempt as an entry."""

    attempt: Attempt

    @classmethod
    def of(cls, attempt: Attempt) -> "Attempted":
        text = f"{attempt.state}: {attempt.text}" if attempt.text else attempt.state
        if attempt.payoff_ratio is not None:
            text += f"; payoff {attempt.payoff_ratio:+.0%}"
        return cls(
            t=attempt.began_t, actor=attempt.actor, source=attempt.trigger,
            action="attempt", target=attempt.target, reason=attempt.reason,
            after=text, attempt=attempt,
        )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """A part of the journal to show to people."""

    lost: str | None  # a loss of records that no person has accepted
    older: bool
    entries: tuple[Entry, ...]  # oldest first


def _to_json(attempt: Attempt) -> dict[str, Any]:
    """Return JSON without an empty `gang`, so that older versions can read it."""
    said = asdict(attempt)
    return said if said["gang"] is not None else {key: said[key] for key in said if key != "gang"}


class Journal:
    """Tables `attempt`, `audit` and `standing`."""

    def __init__(self, where: Worker | Path | None) -> None:
        """`where` is the worker of our own folder, or the path of another process's folder. If it is None, the journal is in memory, for mode `observe`: nothing may be restarted."""
        self._worker = where if isinstance(where, Worker) else Worker(where)
        self._closes = self._worker is not where
        self._worker.tables.append(self)
        self.trouble: str | None = "it was not opened yet"  # why writes fail

    async def probe(self) -> None:
        """Test a write. A failure stays in `trouble` until a write succeeds."""
        with contextlib.suppress(JournalError):
            await self._write("UPDATE standing SET said = said WHERE name = ?", _BEGUN)

    async def close(self) -> None:
        if self._closes:
            await self._worker.close()

    async def write(self, attempt: Attempt) -> None:
        """Insert or replace the attempt. If its hook was called, remove its approval."""
        spent = approval(attempt.incident_id or "", attempt.target) if attempt.spent else None

        def changed(db: sqlite3.Connection) -> None:
            if spent is not None:
                db.execute("DELETE FROM standing WHERE name = ?", (spent,))
            seal.update_sums(db)

        await self._write(
            "INSERT OR REPLACE INTO attempt VALUES (?, ?, ?, ?, ?, ?)",
            attempt.id, attempt.target, attempt.group, attempt.state, attempt.began_t, _to_json(attempt),
            changed=changed,
        )  # fmt: skip

    async def note(self, entry: Entry) -> None:
        await self._write(
            "INSERT INTO audit (t, said) VALUES (?, ?)",
            entry.t,
            asdict(entry),
            changed=seal.add_audit_row,
        )

    async def set(self, name: str, said: Mapping[str, Any] | None) -> None:
        if said is None:
            await self._write("DELETE FROM standing WHERE name = ?", name)
        else:
            await self._write("INSERT OR REPLACE INTO standing VALUES (?, ?)", name, said)

    async def standing(self) -> dict[str, dict[str, Any]]:
        rows = await self._rows("SELECT name, said FROM standing ORDER BY rowid")
        return {name: self._read(said, dict) for name, said in rows}

    async def told(self, since_t: float, entries_max: int) -> Told:
        lost = await self.loss()
        entries = await self.entries(since_t, entries_max + 1)
        attempts = map(Attempted.of, await self.attempts(None, since_t))
        every = sorted([*entries, *attempts], key=lambda entry: entry.t)
        return Told(lost=lost, older=len(every) > entries_max, entries=tuple(every[-entries_max:]))

    async def loss(self) -> str | None:
        lost = (await self.standing()).get(LOST)
        return None if lost is None else str(lost.get("why") or f"damaged: {lost.get('file')}")

    async def accept_loss(self, actor: str, reason: str) -> str | None:
        lost = await self.loss()
        if lost is not None:
            await self.set(LOST, None)
            await self.note(Entry(
                t=time.time(), actor=actor, source="cli", action="accept_loss", reason=reason, before=lost,
                after="the lost history is accepted",
            ))  # fmt: skip
        return lost

    async def attempts(self, group: str | None = None, since_t: float = 0.0) -> tuple[Attempt, ...]:
        rows = await self._rows(
            "SELECT said FROM attempt WHERE began_t >= ? AND group_name = coalesce(?, group_name)"
            " ORDER BY began_t, rowid", since_t, group,
        )  # fmt: skip
        return tuple(self._read(said, Attempt) for (said,) in rows)

    async def entries(self, since_t: float = 0.0, limit: int = 1000) -> tuple[Entry, ...]:
        rows = await self._rows(
            "SELECT said FROM audit WHERE t >= ? ORDER BY number DESC LIMIT ?", since_t, limit
        )
        return tuple(self._read(said, Entry) for (said,) in reversed(rows))

    def _read(self, said: object, make: Callable[..., _T]) -> _T:
        """A malformed entry raises JournalError, because the spent budget is then unknown."""
        try:
            return make(**unpacked(said))
        except (ValueError, TypeError) as error:
            cause = f"an entry in {self._worker.folder} cannot be read: {error}"
            remedy = "It was changed by something else, or written by a newer version: move the file away"
            raise JournalError(cause, remedy) from error

    async def _rows(self, select: str, *values: object) -> list[Any]:
        return await self._do(lambda db: db.execute(select, values).fetchall(), writes=False)

    async def _write(
        self,
        statement: str,
        *values: object,
        changed: Callable[[sqlite3.Connection], None] = seal.update_sums,
    ) -> None:
        def write(db: sqlite3.Connection) -> None:
            columns = [packed(each) if isinstance(each, Mapping) else each for each in values]
            db.execute(statement, columns)
            changed(db)

        await self._do(write)

    async def _do(self, work: Callable[[sqlite3.Connection], _T], *, writes: bool = True) -> _T:
        try:
            done = await self._worker.do(work, seconds=ANSWER_SECONDS, writes=writes)
        except StateError as error:
            self.trouble = error.cause
            raise JournalError(error.cause, error.remedy) from error
        except (ValueError, TypeError) as error:
            self.trouble = f"an entry cannot be written: {error}"
            raise JournalError(self.trouble, "Report it") from error
        if writes:
            self.trouble = None
        return done

    def begin(self, db: sqlite3.Connection) -> None:
        """Set LOST if this file lost writes or replaces a damaged file."""
        (known,) = db.execute("SELECT count(*) FROM standing WHERE name = ?", (_BEGUN,)).fetchone()
        folder, insert = self._worker.folder, "INSERT OR REPLACE INTO standing VALUES (?, ?)"
        why = self._worker.connection.loss
        damaged = () if known else sorted(folder.glob(f"{file.NAME}.damaged-*"))
        if damaged:
            why = f"the state file was damaged, and is now {damaged[-1]}"
        if why is not None:
            db.execute(insert, (LOST, packed({"t": time.time(), "why": why})))
        if not known:
            db.execute(insert, (_BEGUN, packed({"t": time.time()})))
        seal.update_sums(db, pruned=True)

    def prune(self, db: sqlite3.Connection, t: float) -> None:
        for table, column in (("attempt", "began_t"), ("audit", "t")):
            # S608: our own tables
            db.execute(f"DELETE FROM {table} WHERE {column} < ?", (t - KEPT_SECONDS,))  # noqa: S608
            db.execute(
                f"DELETE FROM {table} WHERE rowid NOT IN"  # noqa: S608
                f" (SELECT rowid FROM {table} ORDER BY {column} DESC LIMIT ?)",
                (KEPT_MAX,),
            )
        seal.update_sums(db, pruned=True)
