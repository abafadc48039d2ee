"""What travels between parts in one forward pass: the mask, positions, the cache, notes, and the call itself."""
