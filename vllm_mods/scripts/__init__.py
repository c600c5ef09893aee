"""Command lines as bash reads them; nothing is run."""
