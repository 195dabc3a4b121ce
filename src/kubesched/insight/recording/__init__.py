"""The flight recorder: what went into the scheduler's decisions, in order, and what came out.

A recording is a folder of segments. Each begins with a header and a checkpoint (every object as it
was then) and goes on with a log: informer events, attempts, decisions, outcomes of calls, timers.
`records` says what is written, `segments` how, `recorder` takes the records from the scheduling
loop, `recorded_dependencies` has a scheduler's calls and timers go through it, `reader` gives the
records back.
"""
