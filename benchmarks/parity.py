"""How far our models are from implementations that nobody here wrote, with the same weights, both ways.

    python benchmarks/parity.py                # about a minute on two cores

Runs tests/unit/test_parity_*.py, which need no network, and prints the largest difference of outputs and of gradients
that each of them saw: with their weights in our model, and with ours in theirs. float32; the tests allow 1e-5.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1] / "tests" / "unit"


def main() -> int:
    """Run the tests, print what they measured."""
    sys.path.insert(0, str(TESTS))
    import parity

    files = [str(file) for file in sorted(TESTS.glob("test_parity_*.py"))]
    failed = pytest.main(["-q", "-p", "no:cacheprovider", *files])
    print(f"\n{'':62}{'theirs in ours':^22}{'ours in theirs':^22}")
    print(f"{'test':62}" + f"{'outputs':>10} {'gradients':>10} " * 2)
    for test, directions in parity.MEASURED.items():
        print(f"{test:62}" + "".join(f"{gap:10.1e} " for pair in directions for gap in pair))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
