"""The version of this program; `kubesched.__version__` is the same."""

__version__ = "0.3.0"
