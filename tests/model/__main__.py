"""`python -m tests.model [--steps N] [--seed S]`: random histories until N steps are done.

Prints the seed and what was gone through; exits with 1 and the schedule at the first anomaly.
"""

from __future__ import annotations

import argparse
import secrets
import sys
import time

from tests.model.search import Walk, walk

HISTORY_STEPS = 300


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.model", description=__doc__)
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=None, help="of the first history")
    asked = parser.parse_args()
    seed = secrets.randbelow(10**9) if asked.seed is None else asked.seed
    histories = -(-asked.steps // HISTORY_STEPS)
    print(f"seed {seed}, {histories} histories of {HISTORY_STEPS} steps")
    began = time.monotonic()

    def progress(at: int, steps: int) -> None:
        if (at - seed) % 200 == 199:
            print(f"  seed {at}: {steps} steps, {time.monotonic() - began:.0f} s", flush=True)

    result = walk(Walk(seed, histories, HISTORY_STEPS), progress)
    if result.finding is not None:
        print(result.finding)
        return 1
    print(f"{result.steps} steps in {result.states} histories: no anomaly")
    return 0


if __name__ == "__main__":
    sys.exit(main())
