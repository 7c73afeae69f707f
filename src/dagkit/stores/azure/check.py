"""What `dagkit doctor` asks an Azure store: who we are, whether the parts are there, whether we may write."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable

from azure.core.exceptions import ResourceNotFoundError

from dagkit.azure.account import Account
from dagkit.azure.faults import speaking
from dagkit.errors import DagkitError
from dagkit.stores.azure.container import Container
from dagkit.stores.azure.index import IndexTable

__all__ = ["check"]

Finding = tuple[str, str, str]


def check(account: Account, state: Container, outputs: Container, index: IndexTable) -> list[Finding]:
    """(check, `pass` | `warn` | `fail`, message); never raises for what it finds, and leaves nothing behind."""
    findings = [("account", "pass", f"{account.name} at {account.blob}, credentials: {account.source}")]
    if not account.key and not account.sas:
        findings += _identity()
    return [
        *findings,
        _ask("state", lambda: _writable(state)),
        _ask("outputs", lambda: _writable(outputs)),
        _ask("index", lambda: _readable(index)),
        _ask("clock", lambda: _clock(state)),
    ]


def _ask(name: str, question: Callable[[], tuple[str, str]]) -> Finding:
    try:
        return (name, *question())
    except DagkitError as error:
        return (name, "fail", str(error))


def _identity() -> list[Finding]:
    from dagkit.azure.identity import chain_findings

    said = chain_findings()
    given = any(gave for _, gave, _ in said)
    return [("identity", "pass" if gave or given else "warn", f"{name}: {text}") for name, gave, text in said]


def _writable(container: Container) -> tuple[str, str]:
    doing = f"checking the container {container.name}"
    with speaking(container.connection.account, doing):
        if not container.connection.blobs.get_container_client(container.name).exists():
            return "pass", f"{container.name} is not there yet; the first run makes it"
    name = f"checks/{secrets.token_hex(8)}"
    container.put(name, b"", doing)
    container.delete(name, doing)
    return "pass", f"{container.name} can be written to"


def _readable(index: IndexTable) -> tuple[str, str]:
    with speaking(index.connection.account, f"checking the table {index.name}"):
        try:
            pages = index.connection.tables.get_table_client(index.name).list_entities(results_per_page=1).by_page()
            next(iter(next(pages, iter(()))), None)
        except ResourceNotFoundError:
            return "pass", f"{index.name} is not there yet; the first run makes it"
    return "pass", f"{index.name} can be read"


def _clock(state: Container) -> tuple[str, str]:
    if not state.connection.clock.is_known:
        return "warn", "the service has not said what time it is"
    skew = state.connection.clock.now() - time.time()
    text = f"this machine's clock is {abs(skew):.0f} s {'behind' if skew > 0 else 'ahead of'} the service's"
    if abs(skew) > 60:
        return "warn", f"{text}. Leases and ages go by the service; keys and tokens fail at 15 minutes. Set the clock."
    return "pass", "this machine's clock agrees with the service's"
