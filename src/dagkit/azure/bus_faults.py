"""What went wrong with Service Bus, in one error that says what, where and what now, and holds no secret."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from typing import Final

from azure.core.exceptions import AzureError, ClientAuthenticationError, HttpResponseError
from azure.servicebus import exceptions as said

from dagkit.azure.bus import Bus
from dagkit.azure.faults import redact
from dagkit.errors import AccessDenied, BackendError, DagkitError

__all__ = ["explain", "speaking"]

log = logging.getLogger(__name__)

_ROLES: Final = (
    "Give the identity the role Azure Service Bus Data Owner on the namespace (or Data Sender and Data Receiver, if "
    "the queues exist); new roles need some minutes."
)
_MISSING: Final = (
    "the queue is not there. dagkit creates it given the right to manage the namespace; else: az servicebus queue "
    "create --enable-duplicate-detection true --max-delivery-count 2000 --namespace-name {name} --name <queue>."
)


@contextlib.contextmanager
def speaking(bus: Bus, doing: str) -> Iterator[None]:
    """Turn whatever the SDK raises inside into a `BackendError` about `doing` (`sending to cpu`)."""
    problem = None
    try:
        yield
    except DagkitError:
        raise
    except Exception as error:  # pyamqp lets out errors of sockets, TLS and its own, each of another family
        problem = explain(error, bus, doing)
        log.debug("%s: %s", doing, redact(repr(error), bus.secrets))
    if problem is not None:
        try:
            raise problem
        finally:
            problem.__context__ = None  # the SDK's error may repeat a token


def explain(error: Exception, bus: Bus, doing: str) -> BackendError:
    """The one error for what happened while `doing`."""
    is_refused = isinstance(error, HttpResponseError) and error.status_code in (401, 403)
    kind = AccessDenied if is_refused else BackendError
    return kind(f"{doing}: Service Bus namespace {bus.name}: {redact(_cause(error, bus), bus.secrets)}")


def _cause(error: Exception, bus: Bus) -> str:
    if isinstance(error, (said.ServiceBusAuthenticationError, said.ServiceBusAuthorizationError)):
        return _refusal(bus)
    if isinstance(error, ClientAuthenticationError) and error.status_code is None:
        return (
            f"nobody to sign in as: {_first_line(error)} Sign in (az login), give this machine a managed identity, or "
            f"set DAGKIT_CONNECTION_STRING_{bus.name.partition('.')[0].upper().replace('-', '_')}."
        )
    if isinstance(error, HttpResponseError) and error.status_code in (401, 403):
        return f"no right to manage the namespace: {_refusal(bus)}"
    if isinstance(error, said.MessagingEntityNotFoundError):
        return _MISSING.format(name=bus.name)
    for kind, text in _WORDS:
        if isinstance(error, kind):
            return text.format(host=bus.host, said=_first_line(error))
    return f"{type(error).__name__}: {_first_line(error)}"


def _refusal(bus: Bus) -> str:
    if bus.connection_string:
        return (
            f"the key of {bus.source} is not accepted, or its policy lacks the right. Is it of this namespace, of a "
            f"policy with Send and Listen (and Manage, to create queues), and not replaced since?"
        )
    return f"no right to do this, signed in by {bus.source}. {_ROLES}"


_UNREACHABLE: Final = (
    "{host} cannot be reached, or broke off ({said}) Is the name right, is there a network, and does the firewall let "
    "port 5671 out? Try again."
)
_WORDS: Final[tuple[tuple[type[Exception], str], ...]] = (
    (said.ServiceBusServerBusyError, "the service asks for fewer requests (throttling), also after several tries."),
    (said.ServiceBusQuotaExceededError, "the queue is full ({said}) Receive from it, or give it more room."),
    (
        said.MessagingEntityDisabledError,
        "the queue is disabled. az servicebus queue update --status Active",
    ),
    (said.MessageSizeExceededError, "a message is larger than this tier carries ({said})"),
    (said.OperationTimeoutError, "{host} did not answer in time. Try again; look at the service's health."),
    (TimeoutError, "{host} did not answer in time. Try again; look at the service's health."),
    (said.ServiceBusConnectionError, _UNREACHABLE),
    (said.ServiceBusCommunicationError, _UNREACHABLE),
    (OSError, _UNREACHABLE),
    (AzureError, "the service refused ({said})"),
)


def _first_line(error: Exception) -> str:
    line = str(getattr(error, "message", "") or error).strip().partition("\n")[0]
    line = line.partition(" Error condition: ")[0].strip()  # in the SDK's own words, and only there
    return line[:300] if line.endswith(".") else f"{line[:300]}."
