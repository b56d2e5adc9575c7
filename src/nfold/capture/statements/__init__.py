"""Keeps single statements of a forward whole, where a trace cannot go into them, so that it goes on after them.

choice      the smallest statements around a line that can be called as a function
variables   what they read and set
effects     what else they do
uses        what of a module they use
functions   whose code they are
rewriting   the user's function with a call in their place
holding     all of it, while a trace runs

What the call becomes, a part of the program with inputs, outputs and weights, is `capture/program/held_statement.py`.
"""
