"""Control messages between the coordinator and ranks: connections, orders, events, files in pieces."""
