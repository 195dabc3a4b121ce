"""Running the plugins of one profile: one module per phase."""

from kubesched.framework.runtime.framework import Framework

__all__ = ["Framework"]
