"""The best exact match that can be expected on the dates of data `pairs`, by enumeration of all their readings.

An oracle knows how each locale writes every day of the years, not which days are in which part: see
`zoo.data.cldr.DateRecords.ceiling`. A hundred years leave nothing open; with two hundred, two digits do.

    python benchmarks/dates_oracle.py
    python benchmarks/dates_oracle.py --first-year 1900 --last-year 2099
"""

from __future__ import annotations

import argparse

from zoo.training.job import cache_folder
from zoo_builtin.data.pairs import Pairs
from zoo_builtin.tokenizer.char import Char


def main() -> None:
    """Prints the number of pairs of each part, and the ceiling of validation and test."""
    parser = argparse.ArgumentParser(description="the ceiling of exact match on dates")
    parser.add_argument("--first-year", type=int, default=Pairs.Config.first_year)
    parser.add_argument("--last-year", type=int, default=Pairs.Config.last_year)
    parser.add_argument("--patterns", nargs="+", default=Pairs.Config().patterns, help="of short, medium, long, full")
    arguments = parser.parse_args()
    data = Pairs(Pairs.Config(**vars(arguments)), cache=cache_folder(), tokenizer=Char(Char.Config()))
    data.prepare()
    print(f"train       {data.size('train'):7,} pairs, {data.describe().vocab_size} characters")
    for split in ("validation", "test"):
        print(f"{split:11} {data.size(split):7,} pairs, ceiling {data.ceiling(split):.4f}")


if __name__ == "__main__":
    main()
