"""A run: its folder, its checkpoints, its model, and the way back from there to predictions."""
