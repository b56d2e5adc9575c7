"""Strategy `hypergraph`: the cells of a step as a hypergraph whose partition says who computes what."""
