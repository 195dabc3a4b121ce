"""Makes the scalar twins of the plugins and the recorder importable."""

import sys
from pathlib import Path

TWINS = Path(__file__).parent.parent / "unit" / "plugins"
sys.path[:0] = [str(TWINS), str(Path(__file__).parent)]
