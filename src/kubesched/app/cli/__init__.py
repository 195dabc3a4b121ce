"""The command line: one module per command, loaded when that command is called.

A command module has `DESCRIPTION`, `add_arguments(parser)`, which imports nothing heavy, and
`main(args) -> int`, which does the work and returns the exit code. `main.COMMANDS` lists them.
Package errors are raised, not printed: `main.main` turns them into one message.

Exit codes: 0 success, 1 failure (the message says why), 2 usage error, 70 a bug in this program,
130 interrupted, 141 broken output pipe.
"""
