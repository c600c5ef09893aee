"""The one function: mods and a tree in, verdicts and changes out."""
