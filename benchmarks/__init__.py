"""Speed, memory and growth, always as ratios in one run."""
