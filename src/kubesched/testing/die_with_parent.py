"""Runs a command that dies with its parent: `python die_with_parent.py PARENT_PID COMMAND…`.

A killed process cannot stop its children, but Linux can: `prctl(PR_SET_PDEATHSIG)` asks the kernel
to kill this process when its parent ends; `exec` then replaces this process with the command,
keeping the pid. The module runs as a file before every program of a control plane, so it has no
dependencies and imports little.

Invariant: the command runs only if the parent is still alive after the kernel was asked. The kernel
follows the parent *thread*, so start programs from a thread that outlives them. On other systems
the command runs without this protection.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main(parent: int, command: list[str]) -> None:
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0):
            raise OSError(ctypes.get_errno(), "prctl")
        if os.getppid() != parent:
            sys.exit(1)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        sys.exit(f"cannot run {command[0]}: {error.strerror}")


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
