"""vLLM source trees of every kind, each a ``base.tree.Tree``; ``trees.open`` is the way in."""
