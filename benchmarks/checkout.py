"""Imported first by every benchmark: from a clone, baracuda_py and the example's model are those of the clone."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[1:1] = [str(ROOT), str(ROOT / "examples")]
