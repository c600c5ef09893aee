"""Launchers' recipes: read, written, and put right after a forum mangled them."""
