"""Training: a config becomes a task, and a task is trained step by step."""
