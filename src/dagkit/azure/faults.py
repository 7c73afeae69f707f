"""What went wrong with an Azure service, in one error that says what, where and what now, and holds no secret.

The SDK's own errors repeat urls, and a url with a SAS in it is a secret: no error of ours has one as its cause.
"""

from __future__ import annotations

import contextlib
import logging
import re
import time
from collections.abc import Iterator
from typing import Final

from azure.core.exceptions import (
    AzureError,
    ClientAuthenticationError,
    HttpResponseError,
    ServiceRequestError,
    ServiceResponseError,
)

from dagkit.azure.account import Account
from dagkit.errors import BackendError

__all__ = ["code_of", "explain", "redact", "speaking"]

log = logging.getLogger(__name__)

_SIGNATURE: Final = re.compile(r"(sig|AccountKey|SharedAccessSignature|SharedAccessKey)=[^&;\s'\"]+", re.IGNORECASE)
_ROLES: Final = (
    "Give the identity the roles Storage Blob Data Contributor, Storage Queue Data Contributor and Storage Table Data "
    "Contributor on the account; new roles need some minutes. A SAS needs the services bqt, the resource types sco and "
    "the permissions rwdlacup."
)
_MISSING: Final = {
    "ContainerNotFound": "the container is not there. Is the prefix right? The first submit makes it, given the right.",
    "TableNotFound": "the index table is not there. Is the prefix right? The first submit makes it, given the right.",
    "QueueNotFound": "the queue is not there. Whoever first sends to it makes it, given the right to create queues.",
    "ContainerBeingDeleted": "the container is being deleted. Wait a minute, or choose another prefix.",
    "TableBeingDeleted": "the index table is being deleted. Wait a minute, or choose another prefix.",
    "QueueBeingDeleted": "the queue is being deleted. Wait a minute, or choose another name.",
    "AccountIsDisabled": "the account is disabled. Enable it in the portal.",
    "AccountBeingCreated": "the account is being created. Wait a minute.",
}


@contextlib.contextmanager
def speaking(account: Account, doing: str) -> Iterator[None]:
    """Turn whatever the SDK raises inside into a `BackendError` about `doing` (`saving run w`)."""
    problem = None
    try:
        yield
    except AzureError as error:
        problem = explain(error, account, doing)
        log.debug("%s: %s", doing, redact(str(error), account.secrets))
    if problem is not None:
        try:
            raise problem
        finally:
            problem.__context__ = None  # the SDK's error, put there because this runs while it is handled


def explain(error: AzureError, account: Account, doing: str) -> BackendError:
    """The one error for what happened while `doing`."""
    return BackendError(f"{doing}: storage account {account.name}: {redact(_cause(error, account), account.secrets)}")


def code_of(error: AzureError) -> str:
    """The service's word for what happened (`BlobNotFound`); empty if it did not answer."""
    code = getattr(error, "error_code", None)
    return str(getattr(code, "value", code) or "")


def redact(text: str, secrets: list[str]) -> str:
    """The text without signatures and keys."""
    for secret in secrets:
        text = text.replace(secret, "***")
    return _SIGNATURE.sub(r"\1=***", text)


def _cause(error: AzureError, account: Account) -> str:
    status, code = getattr(error, "status_code", None), code_of(error)
    if isinstance(error, ClientAuthenticationError) and status is None:
        return (
            f"nobody to sign in as: {_first_line(error)} Sign in (az login), give this machine a managed identity, or "
            f"set JOBQ_CONNECTION_STRING. `dagkit doctor` shows what each credential said."
        )
    if status in (401, 403):
        return _refusal(account, code, int(status))
    if code in _MISSING:
        return _MISSING[code]
    if isinstance(error, ServiceRequestError):
        return _unreachable(error, account)
    if isinstance(error, ServiceResponseError):
        return "the service did not answer in time, or broke off. Try again; look at the health of the service."
    if status in (429, 500, 502, 503, 504):
        return f"the service is busy or ill ({status} {code}), also after several tries. Try again later."
    if isinstance(error, HttpResponseError):
        return f"the service refused ({status} {code}): {_first_line(error)}"
    return f"{type(error).__name__}: {_first_line(error)}"


def _refusal(account: Account, code: str, status: int) -> str:
    said = f"({status} {code})"
    if account.sas and (end := account.sas_end) is not None and end < time.time():
        return f"the SAS of {account.source} has expired {said}. Make a new one."
    if account.sas and code == "AuthenticationFailed":
        return (
            f"the SAS of {account.source} is not accepted {said}: not valid yet, or of another account. Make a new one."
        )
    if code == "KeyBasedAuthenticationNotPermitted":
        return f"the account takes no keys {said}. Unset {account.source} and sign in (az login)."
    if account.key:
        return (
            f"the key of {account.source} is not accepted {said}. Is it of this account, and does the firewall of the "
            f"account let this machine in?"
        )
    return f"no right to do this {said}, signed in by {account.source}. {_ROLES}"


def _unreachable(error: AzureError, account: Account) -> str:
    text = str(error)
    if any(sign in text for sign in ("Name or service not known", "getaddrinfo", "NameResolution", "resolve")):
        return f"there is no host for {account.blob}. Is the account's name right, and is there a network?"
    if account.is_local:
        return f"nobody listens at {account.blob}. Start the emulator (azurite), or set BLOB_PORT and its companions."
    return f"{account.blob} cannot be reached. Is there a network, a proxy or a firewall in the way?"


def _first_line(error: AzureError) -> str:
    line = str(getattr(error, "message", "") or error).strip().partition("\n")[0].strip()
    return line[:300] if line.endswith(".") else f"{line[:300]}."
