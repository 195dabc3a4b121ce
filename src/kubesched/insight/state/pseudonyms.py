"""Replaces names and label values by a keyed hash that preserves equality.

A text gets the same pseudonym everywhere, so that a node's name and its hostname label still agree,
and selectors still select. Unchanged: the empty text, whole numbers (compared by the operators Gt
and Lt), and label keys. Without the key file, pseudonyms can be neither computed nor verified.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterable
from pathlib import Path

from kubesched.api.core_v1 import Pod
from kubesched.insight.state.problems import StateError

MIN_KEY_BYTES = 16
DIGITS = 16
"""Hexadecimal digits: with ten million names, the chance of a collision is 1 in 400,000."""

_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)")
_ANY_ADDRESS = ("", "0.0.0.0", "::")
_ZONES = "__"
"""Separates the zones in the label of a multi-zone volume."""


def read_key(path: str) -> bytes:
    """The contents of a key file.

    Raises:
        StateError: the file is missing, or too short to be secret.
    """
    try:
        key = Path(path).read_bytes().strip()
    except OSError as error:
        raise StateError(f"{path}: {error.strerror or error}") from None
    if len(key) < MIN_KEY_BYTES:
        raise StateError(f"{path}: a key needs at least {MIN_KEY_BYTES} bytes, this has {len(key)}")
    return key


class Pseudonyms:
    """Maps text to pseudonyms under one key."""

    def __init__(self, key: bytes) -> None:
        self._hash = hmac.new(key, digestmod=hashlib.sha256)
        self._known: dict[str, str] = {}

    def agree_on_ephemeral_claims(self, pods: Iterable[Pod]) -> None:
        """Build names of ephemeral claims as `<pod>-<volume>` from the pseudonyms of both."""
        for pod in pods:
            for volume in pod.spec.volumes or ():
                if volume.ephemeral is not None:
                    name = pod.metadata.name
                    made = f"{self.name(name)}-{self.name(volume.name)}"
                    self._known[f"{name}-{volume.name}"] = made

    def name(self, text: str) -> str:
        known = self._known.get(text)
        if known is None:
            known = self._known[text] = self._made(text)
        return known

    def label(self, text: str) -> str:
        return _ZONES.join(self.name(part) for part in text.split(_ZONES))

    def image(self, text: str) -> str:
        """Replace repository, tag and digest separately: comparing images adds a missing tag."""
        rest, at, digest = text.partition("@")
        repository, colon, tag = rest.rpartition(":")
        if not colon or "/" in tag:  # the colon belongs to a port, not a tag
            repository, colon, tag = rest, "", ""
        return self.name(repository) + colon + self.name(tag) + at + self.name(digest)

    def address(self, text: str) -> str:
        return text if text in _ANY_ADDRESS else self.name(text)

    def _made(self, text: str) -> str:
        if not text or _NUMBER.fullmatch(text):
            return text
        keyed = self._hash.copy()
        keyed.update(text.encode())
        return "p" + keyed.hexdigest()[:DIGITS]
