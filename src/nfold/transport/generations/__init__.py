"""Connections that outlive a generation of ranks, and the transport of one generation over them."""
