"""Who we are to Azure where there is no key: azure-identity's chain, and what each of its members said."""

from __future__ import annotations

import logging
import threading
from typing import Any, Final

from dagkit.errors import MissingExtra

__all__ = ["SERVICE_BUS_SCOPE", "STORAGE_SCOPE", "chain_findings", "default_credential"]

STORAGE_SCOPE: Final = "https://storage.azure.com/.default"
SERVICE_BUS_SCOPE: Final = "https://servicebus.azure.net/.default"

_PROCESS_S: Final = 10
_ONE_S: Final = 15.0


def default_credential() -> Any:
    """`DefaultAzureCredential`, with a time limit for the commands that it may call."""
    try:
        from azure.identity import DefaultAzureCredential
    except ImportError:
        raise MissingExtra("azure-identity", "azure", "signing in to Azure without a key") from None
    logger = logging.getLogger("azure.identity")
    if logger.level == logging.NOTSET:  # it would say at WARNING, for every call, what our error says in a line
        logger.setLevel(logging.ERROR)
    return DefaultAzureCredential(process_timeout=_PROCESS_S)


def chain_findings(scope: str = STORAGE_SCOPE) -> list[tuple[str, bool, str]]:
    """(credential, whether it gave a token, what it said) for each of the chain, in its order; all asked at once."""
    credential = default_credential()
    members = list(getattr(credential, "credentials", ()))
    said: dict[int, tuple[bool, str]] = {}
    threads = [
        threading.Thread(target=lambda i=i, m=m: said.update({i: _ask(m, scope)}), daemon=True)
        for i, m in enumerate(members)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(_ONE_S)
    silent = (False, f"did not answer within {_ONE_S:g} s")
    return [_named(type(member).__name__, *said.get(index, silent)) for index, member in enumerate(members)]


def _named(name: str, gave: bool, text: str) -> tuple[str, bool, str]:
    """What a credential said, without its name; one that could not even be made is known by its words."""
    first, _, rest = text.partition(" ")
    if name == "FailedDACCredential":
        name = first
    return name, gave, rest if first == name and rest else text


def _ask(member: Any, scope: str) -> tuple[bool, str]:
    try:
        member.get_token(scope)
    except Exception as error:  # any of a dozen libraries may say no in its own way, and all of it is worth showing
        line = str(getattr(error, "message", "") or error).strip().partition("\n")[0]
        return False, line[:300] or type(error).__name__
    return True, "gave a token"
