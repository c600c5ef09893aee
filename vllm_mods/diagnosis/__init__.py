"""What this installation is, what a tree is, and what is wrong: facts gathered once, then checked."""
