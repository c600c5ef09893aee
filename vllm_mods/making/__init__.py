"""A mod out of changed files: from a diff, from two trees, from what a command did."""
