"""Plugins of others: what one is, read as it lies, and what of it does not agree with a vLLM."""
