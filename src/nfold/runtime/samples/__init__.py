"""Samples that live on some nodes and not on others: kept, sent and fetched.

    fetching              sending           of two nodes, over the transport of a generation
    asks for ranges  ──>  reads them        `sample_messages` says what travels, `pacing` how fast
    checks, stores   <──  in pieces
        |                    |
   sample_store        resident_dataset     global numbers; what has come beside what was here all along
        |                    |
    kept_files             record           on disk, with a `journal` | an item, or a file, as bytes

gradients_first  when samples may leave: not while gradients travel
mover            both sides of one node for as long as samples move
own_inventory    what a node tells of its samples before anything moves
sample_costs     what it costs its processor when they do
"""
