"""Scaling laws: how a loss falls with parameters and tokens, fitted to a ladder of runs, and what they advise."""
