"""What a call leaves behind, shares or holds where no output shows it: attributes, globals, hooks, iterators."""
