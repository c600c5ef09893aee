"""Version, prove, apply and revert patches ("mods") to an installed vLLM."""

__version__ = "0.1.0"
