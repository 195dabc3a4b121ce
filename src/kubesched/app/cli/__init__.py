"""The command line: one module per command, loaded when that command is called.

A command module offers `DESCRIPTION`, `add_arguments(parser)`, which imports nothing heavy, and
`main(args) -> int`, which does the work and returns the exit code. `main.COMMANDS` lists them.
Errors of the package are raised, not printed: `main.main` turns them into one message.

Exit codes: 0 done, 1 failed (the message says why), 2 called wrongly, 70 a bug in this program,
130 interrupted, 141 the reader of our output went away.
"""
