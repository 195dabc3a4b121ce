"""The production scheduler under virtual time and seeded faults: safety at every step, then liveness.

`run.simulate` is one run, `sweep` fails one API call after the other; see
`docs/explanation/simulation.md`.
"""
