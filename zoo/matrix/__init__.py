"""Which combinations work: tested, declared unsupported and why, or unknown; made by running them."""
