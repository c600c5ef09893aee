"""Answers in the forms that people and scripts read."""
