"""Makes the scalar twins (`scalar`) and the strategies (`plugin_strategies`) importable by the tests here."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
