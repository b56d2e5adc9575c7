"""The nouns: frozen dataclasses that need the standard library only, and their JSON form."""
