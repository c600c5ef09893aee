"""A release, made whole and tried, up to but without the upload: ``python -m release``."""
