"""Sums runs up, and writes the pages that people open."""
