"""A serve command held against the vLLM it will run on, read statically from the tree."""
