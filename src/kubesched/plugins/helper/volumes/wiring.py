"""What storage plugins need of their handle once a pod has volumes."""

from __future__ import annotations

from kubesched.framework.handle import Handle, Listers


def listers_of(handle: Handle) -> Listers:
    """The listers; there must be some as soon as a pod names a claim."""
    assert handle.listers is not None, "a pod with claims came, but nobody lists claims"
    return handle.listers
