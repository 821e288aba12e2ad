"""What is measured beside accuracies: one file for each quantity, with the section or picture it makes."""
