"""What is done with labelled source features."""
