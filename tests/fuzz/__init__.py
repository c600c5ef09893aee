"""Hostile input for everything that the tool reads: the targets, what holds for them, and the runner."""
