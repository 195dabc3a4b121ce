"""Runs a program that does not outlive whoever started it: `python leash.py PARENT_PID COMMAND…`.

A process that is killed cannot stop what it has started. The kernel can: it is asked here, in the child, to kill it when
its parent is gone; then the command takes this process's place and keeps its number. Stands alone and imports little,
for it is run as a file before every program of a control plane.

Invariant: the command runs only if the parent is still there once the kernel has been asked. The kernel means the thread
that started it: start programs from one that lives as long as they shall. Elsewhere than on Linux there is nobody to
ask, and the command just runs.
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
