"""Shared access signatures: who a token belongs to, and what its policy allows."""

from __future__ import annotations

import base64
import hashlib
import hmac
import time
from dataclasses import dataclass
from urllib.parse import parse_qs, quote_plus

__all__ = ["ALL_RIGHTS", "Policy", "rights_of"]

ALL_RIGHTS = frozenset({"Send", "Listen", "Manage"})


@dataclass(frozen=True)
class Policy:
    """A shared access policy of a namespace."""

    key: str
    rights: frozenset[str] = ALL_RIGHTS


def rights_of(token: str, policies: dict[str, Policy]) -> frozenset[str]:
    """What a token allows; PermissionError says why it is not accepted."""
    fields = {name: values[0] for name, values in parse_qs(token.partition(" ")[2]).items()}
    policy = policies.get(fields.get("skn", ""))
    if policy is None:
        raise PermissionError("InvalidSignature: there is no such policy")
    signed = f"{quote_plus(fields.get('sr', ''))}\n{fields.get('se', '')}"
    signature = base64.b64encode(hmac.new(policy.key.encode(), signed.encode(), hashlib.sha256).digest()).decode()
    if not hmac.compare_digest(signature, fields.get("sig", "")):
        raise PermissionError("InvalidSignature: The token has an invalid signature.")
    if float(fields["se"]) < time.time():
        raise PermissionError("ExpiredToken: The token is expired.")
    return policy.rights
