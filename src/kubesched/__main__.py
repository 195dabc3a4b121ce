"""`python -m kubesched`."""

from __future__ import annotations

import sys

from kubesched.app.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
