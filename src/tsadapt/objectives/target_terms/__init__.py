"""What is done with unlabelled target features."""
