"""Runs the production scheduler in virtual time with seeded faults; checks safety and liveness.

`run.simulate` is one run, `sweep` fails one API call after the other; see
`docs/explanation/simulation.md`.
"""
