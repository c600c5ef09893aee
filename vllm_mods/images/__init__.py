"""Where images lie: engines, layouts, archives, registries. ``open.open_base`` is the way in."""
