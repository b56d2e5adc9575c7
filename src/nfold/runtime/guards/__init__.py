"""Goes on looking, while a program trains, whether chunks still give what their batch would give."""
