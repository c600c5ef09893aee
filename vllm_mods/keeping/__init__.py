"""A library that is kept up with vLLM's releases, as branches of its repository."""
