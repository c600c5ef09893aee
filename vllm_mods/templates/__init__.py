"""Chat templates: rendered in a sandbox, and held against the conversations beside them."""
