"""Where a hunk belongs: its lines, and the classes and functions around them."""
