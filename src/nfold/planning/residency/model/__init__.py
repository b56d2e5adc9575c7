"""The question of where data should live, and what an answer costs: nodes, links, traffic, transfers, prices."""
