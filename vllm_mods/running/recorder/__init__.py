"""What a recorded command loads."""
