"""What is worth knowing of a trained run beside its accuracy."""
