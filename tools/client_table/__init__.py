"""The table of clients, ``templates/clients.toml``, made by asking vLLM's releases: ``python -m client_table``."""
