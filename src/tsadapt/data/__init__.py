"""Data: domains in memory, the files they come from, and the order of their batches."""
