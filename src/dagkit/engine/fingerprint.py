"""Fingerprints: digests of code and of values that are the same in every process and session, or None.

Never pickle bytes, which vary. A fingerprint is None when anything that it would have to cover cannot be digested: a
partial fingerprint would give wrong results to a cache.

Equal means the same for our purposes: dicts in another order are equal, `1`, `1.0` and `True` are three things, `0.0`
and `-0.0` are two, all NaNs are one. Code is bytecode with constants and names, and what it refers to: defaults,
closures, the globals and functions it uses, transitively. Line numbers, comments, annotations and the docstring of a
function are no part of it. Code of the standard library and of site-packages is known by name and version.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from typing import Any

from dagkit.engine._canonical import Digester, joined
from dagkit.engine._code import content_of

__all__ = ["combine", "of_function", "of_value"]


def of_function(function: Any) -> str | None:
    """Fingerprint of a function or any other callable, with everything it captures.

    A module that the function imports when it runs is covered if it has been imported in this process; pickling the
    function does that for modules which are not installed.
    """
    return of_value(function)


def of_value(value: Any) -> str | None:
    """Fingerprint of a value; None if it, or a part of it, cannot be digested.

    An object may have a method `__dagkit_fingerprint__()` that returns a text that identifies its content, or None.
    """
    try:
        return Digester(content_of).digest(value)
    except Exception:  # Undigestible, nested too deeply, or an object's own code (repr, __reduce_ex__) has failed
        return None


def combine(parts: Iterable[str | None]) -> str | None:
    """One fingerprint of several, in order; None if one of them is None."""
    found: list[bytes] = []
    for part in parts:
        if part is None:
            return None
        found.append(part.encode("utf-8", "surrogatepass"))
    return sha256(joined(b"parts", found)).hexdigest()
