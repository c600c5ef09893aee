"""Container images: ``base`` and ``sources`` read them without running anything of what is in them."""
