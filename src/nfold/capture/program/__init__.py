"""The user's model and loss: built, called and tried, also under autocast, and together as one graph.

building          builds the module, the same each time
calling           hands it a batch's inputs
trial             tries it once, and says what goes wrong
autocast          forward and loss under autocast
program_graph     model and loss as one graph, as every method of capture hands it on
held_statement    statements of the user's as a part of that graph
users_line        the user's own line, for messages; gradients_taken the line that takes a gradient
module_outputs    what each module puts out
weight_writes     which weights forward writes to
"""
