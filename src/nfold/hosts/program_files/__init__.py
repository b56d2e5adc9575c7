"""The script's folder on its way to hosts that have not got it."""
