"""What two runs have in common, a run once more from its lock, and published results that ours are held to."""
