"""The only writer of a tree: its transaction and journal, and what they left there."""
