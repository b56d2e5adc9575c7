"""Runs something on every rank of a network in memory at once."""

import threading

from nfold.errors import TransportError


def on_all(network, body):
    """Run a body per rank; return what each returned or raised."""
    found = [None] * network.num_members

    def run(rank):
        try:
            found[rank] = body(rank)
        except TransportError as error:
            found[rank] = error

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(network.num_members)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found
