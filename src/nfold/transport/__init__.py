"""Moves bytes between ranks: one protocol, over memory, TCP or MPI, and a probe of its speed.

protocol          what ranks talk through
implementations   the three transports
generations       connections that outlive a generation of ranks
links             one link per peer: frames, matching, and what carries the bytes over TCP, TLS or MPI
probing           measures the way between two ranks
connecting        proven connections: sockets, the job's token, TLS
tags              the number that names a message
"""
