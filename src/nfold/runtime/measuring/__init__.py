"""What is measured of machines and links, before a run and during it: who probes whom, and what that says.

probing_rounds  who probes whom before a run, and what paces say
slowness        from when on links are worth probing again
reprobing       has that done in the middle of a run
lasting_change  whether a value has changed for good
better_shares   whether other shares of a batch would have won for a while
shifting_speeds    how fast nodes compute while they train
declared_nodes  what a node that joins is planned with
unsent_bytes    what may wait in the kernel on the way to a peer
"""
