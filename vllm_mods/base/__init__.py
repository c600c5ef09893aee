"""Words and errors that every room speaks of, and the little that all of them need."""
