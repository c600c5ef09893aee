"""Libraries of others: fetched whole, pinned, and held against what was pinned."""
