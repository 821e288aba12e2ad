"""What is minimised: a source term, target terms and a method, each in a room of its own, one file each."""
