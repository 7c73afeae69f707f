"""Storage accounts: endpoints and credentials of an account by its name, from the environment."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from dagkit.errors import ConfigError

__all__ = ["EMULATOR", "Account", "find_account", "parse_connection_string"]

EMULATOR: Final = "devstoreaccount1"
#: Public knowledge, the same in every Azurite (Microsoft's documentation of the emulator).
_EMULATOR_KEY: Final = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
_SERVICES: Final = ("blob", "queue", "table")
_STRINGS: Final = ("JOBQ_CONNECTION_STRING", "AZURE_STORAGE_CONNECTION_STRING")
_LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True, slots=True)
class Account:
    """A storage account. Of `key` and `sas` at most one is set; without both, azure-identity says who we are.

    Attributes:
        source: Where the credentials come from, in words.
    """

    name: str
    blob: str
    queue: str
    table: str
    key: str | None = field(default=None, repr=False)
    sas: str | None = field(default=None, repr=False)
    source: str = "azure-identity"

    @property
    def is_local(self) -> bool:
        """Whether the account is an emulator on this machine."""
        return urlsplit(self.blob).hostname in _LOOPBACK

    @property
    def secrets(self) -> list[str]:
        """Texts that must not be seen: the key, the SAS and its signature."""
        signature = [part[4:] for part in (self.sas or "").split("&") if part.startswith("sig=")]
        return [secret for secret in (self.key, self.sas, *signature) if secret]

    @property
    def sas_end(self) -> float | None:
        """When the SAS ends, in seconds since the epoch; None if there is none or it does not say."""
        for end in parse_qs(self.sas or "").get("se", ()):
            with contextlib.suppress(ValueError):
                return datetime.fromisoformat(end.replace("Z", "+00:00")).timestamp()
        return None


def find_account(name: str, environ: Mapping[str, str] | None = None) -> Account:
    """The account of this name.

    A connection string for it is looked for in DAGKIT_CONNECTION_STRING_<NAME>, JOBQ_CONNECTION_STRING and
    AZURE_STORAGE_CONNECTION_STRING; then a key or SAS in the variables of the az command (AZURE_STORAGE_ACCOUNT with
    AZURE_STORAGE_KEY or AZURE_STORAGE_SAS_TOKEN). `devstoreaccount1` is the emulator on this machine, with its ports in
    BLOB_PORT, QUEUE_PORT and TABLE_PORT. Anything else is in the public cloud and asks azure-identity.
    """
    environ = os.environ if environ is None else environ
    for variable in (f"DAGKIT_CONNECTION_STRING_{name.upper()}", *_STRINGS):
        if text := environ.get(variable):
            account = parse_connection_string(text, variable, environ)
            if account.name == name:
                return account
    if name == EMULATOR:
        return _emulator(environ)
    if environ.get("AZURE_STORAGE_ACCOUNT") == name:
        if key := environ.get("AZURE_STORAGE_KEY"):
            return _in_cloud(name, key=key, source="AZURE_STORAGE_KEY")
        if sas := environ.get("AZURE_STORAGE_SAS_TOKEN"):
            return _in_cloud(name, sas=sas.lstrip("?"), source="AZURE_STORAGE_SAS_TOKEN")
    return _in_cloud(name)


def parse_connection_string(text: str, variable: str, environ: Mapping[str, str] | None = None) -> Account:
    """The account of a storage connection string; `ConfigError` names the variable and what is missing in it."""
    pairs = (part.partition("=") for part in text.split(";") if part.strip())
    fields = {key.strip().lower(): value.strip() for key, _, value in pairs}
    if fields.get("usedevelopmentstorage", "").lower() == "true":
        return _emulator(os.environ if environ is None else environ)
    name = fields.get("accountname") or _name_in(fields.get("blobendpoint", ""))
    if not name:
        raise ConfigError(f"{variable} is not a storage connection string: it has no AccountName and no BlobEndpoint")
    return Account(
        name,
        _endpoint(fields, "blob", name),
        _endpoint(fields, "queue", name),
        _endpoint(fields, "table", name),
        key=fields.get("accountkey"),
        sas=None if fields.get("accountkey") else (fields.get("sharedaccesssignature") or "").lstrip("?") or None,
        source=variable,
    )


def _endpoint(fields: Mapping[str, str], service: str, name: str) -> str:
    given = fields.get(f"{service}endpoint")
    if given:
        return given.rstrip("/")
    scheme = fields.get("defaultendpointsprotocol", "https")
    return f"{scheme}://{name}.{service}.{fields.get('endpointsuffix', 'core.windows.net')}"


def _name_in(endpoint: str) -> str:
    """The account in an endpoint: the first part of its host, or of the path where the host is an address."""
    parts = urlsplit(endpoint)
    host = parts.hostname or ""
    is_address = host in _LOOPBACK or host.replace(".", "").isdigit()
    return parts.path.strip("/").partition("/")[0] if is_address else host.partition(".")[0]


def _emulator(environ: Mapping[str, str]) -> Account:
    def endpoint(service: str, default: int) -> str:
        return f"http://127.0.0.1:{environ.get(f'{service.upper()}_PORT') or default}/{EMULATOR}"

    places: Any = {service: endpoint(service, 10000 + number) for number, service in enumerate(_SERVICES)}
    return Account(EMULATOR, **places, key=_EMULATOR_KEY, source="the emulator's own key")


def _in_cloud(name: str, **secrets: str) -> Account:
    places: Any = {service: f"https://{name}.{service}.core.windows.net" for service in _SERVICES}
    return Account(name, **places, **secrets)
