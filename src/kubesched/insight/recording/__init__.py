"""The flight recorder: the inputs of the scheduler's decisions, in order, and their results.

A recording is a folder of segments. Each begins with a header and a checkpoint (all objects at that
moment), followed by a log: informer events, attempts, decisions, call outcomes, timers. `records`
defines the records, `segments` the file format. `recorder` takes records from the scheduling loop,
`recorded_dependencies` wraps a scheduler's calls and timers, `reader` reads the records.
"""
