"""Libraries of others: had whole, pinned, held against what was pinned; one's own, published."""
