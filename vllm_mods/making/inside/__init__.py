"""Programs that run in a recording's sandbox, on its Python 3.8 or newer: they import nothing of this package."""
