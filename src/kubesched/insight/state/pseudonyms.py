"""Names and label values replaced by a keyed hash: equal stay equal, different stay different.

The same text gets the same pseudonym wherever it stands, so that a node's name and its hostname
label still agree, and selectors still select. Kept as they are: the empty text, whole numbers (the
operators Gt and Lt compare them), and label keys. Without the key file a pseudonym can be neither
computed nor tested.
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
"""Hexadecimal digits of a pseudonym: among ten million names two meet with a chance of 1 in
400,000.
"""

_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)")
_ANY_ADDRESS = ("", "0.0.0.0", "::")
_ZONES = "__"
"""Separates the zones in the label of a volume that is in several."""


def read_key(path: str) -> bytes:
    """The contents of a key file.

    Raises:
        StateError: it is missing or too short to be secret.
    """
    try:
        key = Path(path).read_bytes().strip()
    except OSError as error:
        raise StateError(f"{path}: {error.strerror or error}") from None
    if len(key) < MIN_KEY_BYTES:
        raise StateError(f"{path}: a key needs at least {MIN_KEY_BYTES} bytes, this has {len(key)}")
    return key


class Pseudonyms:
    """Text to pseudonym under one key."""

    def __init__(self, key: bytes) -> None:
        self._hash = hmac.new(key, digestmod=hashlib.sha256)
        self._known: dict[str, str] = {}

    def agree_on_ephemeral_claims(self, pods: Iterable[Pod]) -> None:
        """Claims of ephemeral volumes are found by `<pod>-<volume>`; their pseudonyms must be made likewise."""
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
        """Repository, tag and digest apart: a missing tag is completed before images are compared."""
        rest, at, digest = text.partition("@")
        repository, colon, tag = rest.rpartition(":")
        if not colon or "/" in tag:  # a port is no tag
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
