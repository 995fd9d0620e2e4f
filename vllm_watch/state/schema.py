"""The schema of the state file, as a list of migrations, and the JSON text in its columns.

Append migrations, and never change a released one. `PRAGMA user_version` is the number of
migrations already run.
"""

import json
import sqlite3
from collections.abc import Mapping
from typing import Any

from vllm_watch.errors import StateError
from vllm_watch.support import json_text

APPLICATION_ID = 0x766C6C77
"""The letters "vllw" identify our files (`PRAGMA application_id`)."""

MIGRATIONS: tuple[str, ...] = (
    # 1: incidents and learnt state.
    """
    CREATE TABLE incident (
        id TEXT PRIMARY KEY,
        target TEXT NOT NULL,
        kind TEXT NOT NULL,
        opened_t REAL,             -- Unix seconds; NULL if the beginning was not kept
        updated_t REAL NOT NULL,   -- of the last event
        resolved_t REAL,           -- NULL while it is open
        event TEXT NOT NULL        -- the last event, as published, in JSON
    );
    CREATE INDEX incident_of_target ON incident (target, resolved_t);
    CREATE TABLE watch (
        target TEXT PRIMARY KEY,
        group_name TEXT NOT NULL,
        saved_t REAL NOT NULL,
        state TEXT NOT NULL        -- what vllm_watch/watch/kept_state.py exports, in JSON
    );
    """,
    # 2: the journal.
    """
    CREATE TABLE audit (           -- who wanted what, and what came of it; never changed
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        t REAL NOT NULL,           -- Unix seconds
        said TEXT NOT NULL         -- in JSON
    );
    """,
    # 3: restarts.
    """
    CREATE TABLE attempt (
        id TEXT PRIMARY KEY,
        target TEXT NOT NULL,
        group_name TEXT NOT NULL,
        state TEXT NOT NULL,       -- one of vllm_watch/state/attempt.py
        began_t REAL NOT NULL,     -- Unix seconds
        said TEXT NOT NULL         -- the whole attempt, in JSON
    );
    CREATE INDEX attempt_of_group ON attempt (group_name, began_t);
    CREATE TABLE standing (        -- pause, silences and breaker; and when each version first ran
        name TEXT PRIMARY KEY,
        said TEXT NOT NULL         -- in JSON
    );
    """,
    # 4: sent notifications.
    """
    CREATE TABLE notice (
        notifier TEXT NOT NULL,    -- its name in the configuration
        matter TEXT NOT NULL,      -- id of the incident, of the step of a restart, …
        phase TEXT NOT NULL,       -- opened, worse, changed, reminder, resolved, said; the second reminder is 'reminder 2'
        t REAL NOT NULL,           -- Unix seconds: when it became due
        told_t REAL,               -- NULL until it is sent
        message TEXT,              -- idempotency key of the message that carries it
        said TEXT NOT NULL,        -- the incident or step as it was then, in JSON
        PRIMARY KEY (notifier, matter, phase)
    );
    """,
    # 5: detection of lost writes (seal.py).
    """
    CREATE TABLE seal (
        generation TEXT NOT NULL,
        writes INTEGER NOT NULL,   -- durable ones
        held INTEGER,              -- checksum of attempt and standing, which the restart guard reads; NULL until computed
        noted INTEGER              -- checksum of audit, extended by each row; NULL until computed
    );
    INSERT INTO seal VALUES (lower(hex(randomblob(16))), 0, NULL, NULL);
    """,
)


def migrate(connection: sqlite3.Connection) -> None:
    """Migrate a new or old file, each step in its own transaction.

    Raises:
        StateError: the file belongs to another program or a newer vllm-watch.
        sqlite3.Error: it cannot be read or written.
    """
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if application != APPLICATION_ID and (tables or version):
        raise StateError(
            "the state file is another program's SQLite file",
            "Name another folder with --state-dir, or move that file away.",
        )
    if version > len(MIGRATIONS):
        raise StateError(
            f"the state file has schema {version}, and this vllm-watch knows up to {len(MIGRATIONS)}",
            "Run the newer vllm-watch that wrote it, or name another folder with --state-dir.",
        )
    for number, step in enumerate(MIGRATIONS[version:], version + 1):
        connection.executescript(
            f"BEGIN; {step} PRAGMA application_id = {APPLICATION_ID};"
            f" PRAGMA user_version = {number}; COMMIT;"
        )


def packed(value: Mapping[str, Any]) -> str:
    """Return JSON text. Raises TypeError or ValueError if not serializable."""
    # In ASCII, because SQLite rejects lone surrogates.
    return json.dumps(value, separators=(",", ":"))


def unpacked(text: object) -> dict[str, Any]:
    """Parse packed text. Raises TypeError or ValueError if damaged."""
    found = json_text.read(text)  # type: ignore[arg-type]
    if not isinstance(found, dict):
        raise TypeError("it is not an object")
    return found
