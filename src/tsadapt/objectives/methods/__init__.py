"""What brings the two domains together."""
