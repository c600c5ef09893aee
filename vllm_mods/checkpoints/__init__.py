"""What a model is, from its config.json and the headers of its safetensors, and which mods it needs.

No weights are read. A checkpoint lies in a folder, or on the Hub, which is asked for byte ranges.
"""
