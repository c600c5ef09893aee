"""bash, read and never run: command lines and whole scripts."""
