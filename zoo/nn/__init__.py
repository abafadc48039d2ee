"""Leaf layers that architectures share. They know no registry and no recipe."""
