import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent
# Their apps and fixtures.
sys.path[:0] = [str(TESTS), str(TESTS / "server")]
