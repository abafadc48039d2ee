"""Variants x tasks x seeds: the grid, its runs, and what their differences say. Not named ``compare``, which is
the function ``zoo.compare``."""
