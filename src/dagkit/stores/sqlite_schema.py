"""The tables of an SQLite store. A change here is a new FORMAT, and `Database` has to learn how to get there."""

from __future__ import annotations

from typing import Final

__all__ = ["FORMAT", "SCHEMA"]

FORMAT: Final = 1

#: Statements with an empty line between them. `runs` has what polling needs and no big record.
#: A save is one INSERT into the view `saves`.
SCHEMA: Final = """
CREATE TABLE runs (
    run INTEGER PRIMARY KEY AUTOINCREMENT,
    workflow_id TEXT NOT NULL UNIQUE,
    version INTEGER NOT NULL,
    revision INTEGER NOT NULL,
    head TEXT NOT NULL,
    name TEXT NOT NULL,
    status TEXT NOT NULL,
    counts TEXT NOT NULL,
    default_queue TEXT NOT NULL,
    queues_used TEXT NOT NULL,
    cancel_requested INTEGER NOT NULL DEFAULT 0,
    error TEXT NOT NULL,
    created_at REAL NOT NULL,
    updated_at REAL NOT NULL)

CREATE INDEX runs_by_update ON runs (updated_at)

CREATE TABLE definitions (run INTEGER PRIMARY KEY, document BLOB NOT NULL)

CREATE TABLE tasks (
    run INTEGER NOT NULL,
    name TEXT NOT NULL,
    entry TEXT NOT NULL,
    PRIMARY KEY (run, name)) WITHOUT ROWID

CREATE TABLE results (fingerprint TEXT PRIMARY KEY, ref TEXT NOT NULL) WITHOUT ROWID

CREATE TABLE leases (
    name TEXT PRIMARY KEY,
    owner TEXT NOT NULL,
    token TEXT NOT NULL,
    expires_at REAL NOT NULL,
    span_s REAL NOT NULL) WITHOUT ROWID

CREATE VIEW saves AS
SELECT run, workflow_id, version, head, status, counts, error, updated_at, '{}' AS entries FROM runs

CREATE TRIGGER save INSTEAD OF INSERT ON saves BEGIN
    SELECT raise(ABORT, 'not this version') WHERE NOT EXISTS (
        SELECT 1 FROM runs WHERE run = new.run AND workflow_id = new.workflow_id AND version = new.version);
    UPDATE runs SET version = version + 1, head = new.head, status = new.status, counts = new.counts,
        error = new.error, updated_at = new.updated_at WHERE run = new.run;
    INSERT OR REPLACE INTO tasks SELECT new.run, key, value FROM json_each(new.entries);
END
"""
