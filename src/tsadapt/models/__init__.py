"""Networks: a backbone, a bottleneck, and a head linear in the features."""
