"""Where images lie: engines, layouts, registries. ``open.open_base`` is the way in."""
