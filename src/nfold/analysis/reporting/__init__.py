"""Findings -> report: the verdict, what would win time back, and what to type for it."""
