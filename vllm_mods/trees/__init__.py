"""Trees that can be read: one module per kind."""
