"""What makes a mod say "done" when it is not, found without running it."""
