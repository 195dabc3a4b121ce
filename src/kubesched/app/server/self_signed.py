"""A serving certificate when none is configured, signed by an authority made for it.

Sufficient for probes and for scrapers that skip verification.
"""

from __future__ import annotations

from pathlib import Path

from kubesched.base.certificates import Authority, Pair, write_private

PAIR_NAME = "kube-scheduler"
HOST = "localhost"
ADDRESS = "127.0.0.1"


def load_or_make(folder: str, now: float) -> Pair:
    """The pair stored in `folder`, or a new one, stored there if a folder is given."""
    if not folder:
        return make(now)
    certificate, key = Path(folder) / f"{PAIR_NAME}.crt", Path(folder) / f"{PAIR_NAME}.key"
    if certificate.exists() and key.exists():
        return Pair(certificate.read_bytes(), key.read_bytes())
    made = make(now)
    Path(folder).mkdir(mode=0o755, parents=True, exist_ok=True)
    write_private(certificate, made.certificate, 0o644)
    write_private(key, made.key)
    return made


def make(now: float) -> Pair:
    """A certificate, with that of its authority, for the loopback names of this machine."""
    authority = Authority(f"{HOST}-ca@{int(now)}", now)
    made = authority.issue(f"{HOST}@{int(now)}", names=[HOST], addresses=[ADDRESS])
    return Pair(made.certificate + authority.certificate, made.key)
