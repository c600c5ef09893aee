"""From a pairing to an image: layers, and where they go."""
