"""Strategy `hypergraph`: the cells of a step as a hypergraph whose partition says who computes what.

hypergraph_strategy            the strategy itself, from facts to proposals
cell_hypergraph                the hypergraph: what vertices weigh, and what nets cost
block_limits                   what a rank may hold, in seconds and bytes
partition                      divides it: tries starts, and takes the best
nested_layouts, team_layouts   starts
kahypar                        asks Mt-KaHyPar
kahypar_processes              which process answers, so that none keeps much of what it is asked
kahypar_answers                the answers: all calls of the package
repair, move_gains             moves cells until limits are kept and little crosses
balance                        says when a rank has more work than asked for
operators_to_cut               proposes which operators to cut into parts

Operators that stay together are joined before that, in `planning/inputs/operator_groups.py`.
"""
