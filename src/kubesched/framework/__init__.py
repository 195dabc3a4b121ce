"""The scheduling framework: the contract between the scheduler and its plugins.

`interfaces` is what a plugin author reads, `runtime` runs it. Nothing here does I/O or asks for the time.
"""
