"""Train as a program of its own: ``train_script.py RECIPE RUN [--resume] [KEY=VALUE ...]``.

Lightning starts it again for each further rank. The result goes to standard output as JSON; the exit codes are
those of the command line.
"""

from __future__ import annotations

import json
import signal
import sys

from zoo.errors import Diverged, Interrupted
from zoo.recipe import load_recipe
from zoo.training.train import train


def main() -> int:
    """Train, and say how it ended."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell that starts programs with & ignores it
    recipe, run, *rest = sys.argv[1:]
    resume = "--resume" in rest
    overrides = [argument for argument in rest if argument != "--resume"]
    try:
        print(json.dumps(train(load_recipe(recipe, overrides), run, resume=resume)))
    except Interrupted as error:
        return 128 + error.signal_number
    except Diverged:
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
