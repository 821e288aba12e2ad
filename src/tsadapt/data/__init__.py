"""Data: domains and datasets, the readers of their formats, checks, and the order of batches."""
