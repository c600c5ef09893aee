"""A pairing as a container that serves: how it is started, what is kept of it, and what its log shows."""
