"""Service Bus namespaces: the endpoint and the credential of a namespace by its name, from the environment."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from dagkit.errors import ConfigError

__all__ = ["Bus", "find_bus"]

_STRINGS: Final = ("AZURE_SERVICEBUS_CONNECTION_STRING", "SERVICEBUS_CONNECTION_STRING")
_ADMIN: Final = "DAGKIT_SERVICEBUS_ADMIN"
_NAME: Final = re.compile(r"[A-Za-z](?:[A-Za-z0-9-]*[A-Za-z0-9])?(?:\.[A-Za-z0-9-]+)*")
_EMULATOR_ADMIN_PORT: Final = 5300  # of Microsoft's own emulator, whose administration has no TLS


@dataclass(frozen=True, slots=True)
class Bus:
    """A Service Bus namespace. Without a connection string, azure-identity says who we are.

    Attributes:
        host: Fully qualified name of the namespace, with the port where an emulator has one.
        admin: Url of the administration.
        source: Where the credential comes from, in words.
    """

    name: str
    host: str
    admin: str
    connection_string: str | None = field(default=None, repr=False)
    source: str = "azure-identity"

    @property
    def url(self) -> str:
        return f"sb://{self.name}"

    @property
    def fields(self) -> dict[str, str]:
        """Parts of the connection string by their names in lower case."""
        return _fields(self.connection_string or "")

    @property
    def secrets(self) -> list[str]:
        """Texts that must not be seen."""
        parts = (self.fields.get(name, "") for name in ("sharedaccesskey", "sharedaccesssignature"))
        return [part for part in parts if part]


def find_bus(url: str, environ: Mapping[str, str] | None = None) -> Bus:
    """The namespace behind `sb://<namespace>`; a full host name does as well.

    A connection string for it is looked for in DAGKIT_CONNECTION_STRING_<NAMESPACE> (dashes as underscores), then in
    AZURE_SERVICEBUS_CONNECTION_STRING and SERVICEBUS_CONNECTION_STRING if it is of this namespace. Without one,
    azure-identity is asked. DAGKIT_SERVICEBUS_ADMIN is the url of an emulator's administration.
    """
    environ = os.environ if environ is None else environ
    name = url.partition(":")[2].strip("/")
    if not _NAME.fullmatch(name):
        raise ConfigError(f"{url!r}: the queues of a Service Bus namespace are sb://<namespace>")
    variable = f"DAGKIT_CONNECTION_STRING_{name.partition('.')[0].upper().replace('-', '_')}"
    if text := environ.get(variable):
        return _by_string(name, text, variable, environ)
    for variable in _STRINGS:
        if (text := environ.get(variable)) and _first_label(_host(text, variable)) == _first_label(name):
            return _by_string(name, text, variable, environ)
    host = name if "." in name else f"{name}.servicebus.windows.net"
    return Bus(name, host, environ.get(_ADMIN) or f"https://{host}")


def _by_string(name: str, text: str, variable: str, environ: Mapping[str, str]) -> Bus:
    host, fields = _host(text, variable), _fields(text)
    if not {"sharedaccesskey", "sharedaccesssignature"} & set(fields):
        raise ConfigError(f"{variable} has no SharedAccessKey. Copy the connection string of a policy, or unset it.")
    if "entitypath" in fields:
        raise ConfigError(f"{variable} is of one queue (EntityPath). Take the connection string of the namespace.")
    admin = environ.get(_ADMIN) or f"https://{host}"
    if fields.get("usedevelopmentemulator") == "true" and not environ.get(_ADMIN):
        admin = f"http://{host.partition(':')[0]}:{_EMULATOR_ADMIN_PORT}"
    return Bus(name, host, admin, text, variable)


def _host(text: str, variable: str) -> str:
    host = urlsplit(_fields(text).get("endpoint", "")).netloc
    if not host:
        raise ConfigError(f"{variable} is not a Service Bus connection string: it has no Endpoint=sb://<host>")
    return host


def _first_label(host: str) -> str:
    return host.partition(".")[0].lower()


def _fields(text: str) -> dict[str, str]:
    pairs = (part.partition("=") for part in text.split(";") if part.strip())
    return {key.strip().lower(): value.strip() for key, _, value in pairs}
