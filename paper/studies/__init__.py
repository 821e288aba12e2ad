"""Long experiments, each a command that goes on where it stopped; what they measured is under results/."""
