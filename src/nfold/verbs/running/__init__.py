"""One run from a program to a folder, whole or a step at a time, and what is shown of it while it lasts."""
