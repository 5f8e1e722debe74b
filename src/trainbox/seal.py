"""The seal of a manifest: a short digest of each value that says what ran and what came of it, made when a run is done.

It names the values that were changed later, by hand or by accident. It is no signature: whoever changes a value can
seal it anew.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

KEY = "seal"
# Who started the run, when and in which words: nothing that a result hangs on.
UNSEALED = (KEY, "command", "sources", "starts", "user")
_DIGITS = 8


def seal(manifest: Mapping[str, Any]) -> dict[str, str]:
    """For each sealed section of `manifest`, as JSON gives it back, the digests of its values in one string."""
    return {name: "".join(_digests(manifest, name)) for name in manifest if name not in UNSEALED}


def broken(manifest: Mapping[str, Any]) -> list[str]:
    """The values that are not those that were sealed, by their paths (`config.learning_rate`), in their order.

    Of a value that is gone only its section is known, unless another one of it has changed. A manifest without any
    seal has nothing to compare with: no value is named.
    """
    sealed = manifest.get(KEY)
    if not isinstance(sealed, Mapping):
        return []
    found: list[str] = []
    for name in dict.fromkeys([*manifest, *sealed]):
        if name not in UNSEALED:
            found += _changed(manifest, name, str(sealed.get(name, "")))
    return found


def leaves(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Every value below `value` that is no object, with its path; a list is one value."""
    if isinstance(value, Mapping) and value:
        for name, item in value.items():
            yield from leaves(item, f"{path}.{name}")
    else:
        yield path, value


def _changed(manifest: Mapping[str, Any], name: str, sealed: str) -> list[str]:
    known = {sealed[start : start + _DIGITS] for start in range(0, len(sealed), _DIGITS)}
    now = _digests(manifest, name)
    changed = [path for digest, path in now.items() if digest not in known]
    return changed if changed or known <= set(now) else [f"{name} (a value is gone)"]


def _digests(manifest: Mapping[str, Any], name: str) -> dict[str, str]:
    """Path by digest, for each value of a section."""
    found = leaves(manifest[name], name) if name in manifest else ()
    return {_digest(path, value): path for path, value in found}


def _digest(path: str, value: Any) -> str:
    return hashlib.sha256(json.dumps([path, value], sort_keys=True).encode()).hexdigest()[:_DIGITS]
