"""Mods and pairings read from folders, held against their checksums."""
