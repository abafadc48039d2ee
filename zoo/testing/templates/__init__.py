"""What ``zoo new`` starts from: a working component of each kind, whose checks and types are those of any other.

The scaffold writes a copy with ``Mine`` and ``mine`` replaced by the new name. The kit uses them, too, as the
plainest parts that there are.
"""
