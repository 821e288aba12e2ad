"""Studies whose work is not a table of trainings: each has a function that does it, and one that describes it."""
