"""Bytes to data and back, one module for each format, with everything that is wrong in a file."""
