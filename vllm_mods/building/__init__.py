"""From a pairing to an image: layers, documents, and where they go."""
