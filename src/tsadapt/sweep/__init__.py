"""Sweeps: many runs, and the choice among them without target labels."""
