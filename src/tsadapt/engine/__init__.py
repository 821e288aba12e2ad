"""Training, evaluation and everything a run leaves on disk."""
