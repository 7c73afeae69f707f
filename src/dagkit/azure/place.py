"""Where things are in Azure: the urls by which stores and queues are opened. A url never holds a secret."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from dagkit.errors import ConfigError
from dagkit.model.names import ServiceNames

__all__ = ["FILE_CONTAINER", "Place", "is_account_name", "refuse_secrets"]

FILE_CONTAINER: Final = "jobq-workflow-data"

_ACCOUNT: Final = re.compile(r"[a-z0-9]{3,24}")
_CONTAINER: Final = re.compile(r"(?!.*--)[a-z0-9][a-z0-9-]{1,61}[a-z0-9]")
_SECRET: Final = re.compile(r"(AccountKey|SharedAccessKey|SharedAccessSignature|\bsig)=", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Place:
    """An account, a prefix in it, and the account and container of file outputs.

    `azure://<account>/<prefix>`, with `?blobs=<account>/<container>` where files go elsewhere than to the state
    account's `jobq-workflow-data`. The prefix is empty for queues, which have no use for one.
    """

    account: str
    prefix: str = ""
    blobs_account: str = ""
    blobs_container: str = FILE_CONTAINER

    @classmethod
    def parse(cls, url: str, blobs: str | None = None) -> Place:
        """The place behind a url; `blobs` (`<account>/<container>`) is what the settings say about files."""
        refuse_secrets(url, "the store")
        rest, _, query = url.removeprefix("azure:").lstrip("/").partition("?")
        account, _, prefix = rest.strip("/").partition("/")
        if query and not query.startswith("blobs="):
            raise ConfigError(f"{url!r}: after the ? only blobs=<account>/<container> is known")
        blobs = query.removeprefix("blobs=") or blobs
        blobs_account, _, container = blobs.rpartition("/") if blobs else ("", "", FILE_CONTAINER)
        for name in filter(None, (account, blobs_account)):
            _check(_ACCOUNT, name, url, "a storage account name is 3 to 24 lower-case letters and digits")
        _check(_CONTAINER, container, url, "a container name is 3 to 63 lower-case letters, digits and single dashes")
        if not account:
            raise ConfigError(f"{url!r}: the storage account is missing, as in azure://<account>/<prefix>")
        if prefix:
            ServiceNames(prefix)
        return cls(account, prefix, blobs_account, container)

    @property
    def url(self) -> str:
        elsewhere = self.blobs_account or self.blobs_container != FILE_CONTAINER
        query = f"?blobs={self.blobs_account or self.account}/{self.blobs_container}" if elsewhere else ""
        return f"azure://{self.account}{'/' if self.prefix else ''}{self.prefix}{query}"

    @property
    def names(self) -> ServiceNames:
        """What containers, table and completion queue are called. `ConfigError` without a prefix."""
        if not self.prefix:
            raise ConfigError(f"{self.url}: the prefix is missing, as in azure://{self.account}/<prefix>")
        return ServiceNames(self.prefix)


def is_account_name(text: str) -> bool:
    """Whether a text can be the bare name of a storage account."""
    return _ACCOUNT.fullmatch(text) is not None


def refuse_secrets(text: str, what: str) -> None:
    """`ConfigError` for a connection string or a SAS where an address belongs; the text is not repeated."""
    if "Endpoint=sb:" in text:
        raise ConfigError(
            f"{what} is an address without secrets, sb://<namespace>. "
            f"Put a connection string into the environment variable AZURE_SERVICEBUS_CONNECTION_STRING."
        )
    if _SECRET.search(text) or "EndpointsProtocol=" in text:
        raise ConfigError(
            f"{what} is an address without secrets, azure://<account>/<prefix>. "
            f"Put a connection string into the environment variable JOBQ_CONNECTION_STRING."
        )


def _check(pattern: re.Pattern[str], name: str, url: str, rule: str) -> None:
    if not pattern.fullmatch(name):
        raise ConfigError(f"{url!r}: {name!r}: {rule}")
