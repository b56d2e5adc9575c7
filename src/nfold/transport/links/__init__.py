"""One link per peer: frames, matching of messages with receives, and what carries the bytes.

link             messages out of and into an ordered way for bytes
framing, inbox   messages as bytes; messages matched with receives
tcp_carrier, tls_carrier, mpi_carrier   what carries a link
loop, mpi_loop   the one thread that serves all sockets, or speaks MPI
losses           which peers are lost
byte_counts      payload that went and came
delay            latency where the kernel cannot delay
"""
