"""Any placement gets reductions that hold every trained parameter once, among exactly its owners."""

from grids import chain, facts, graphs, model, parameter, place
from hypothesis import given, settings
from hypothesis import strategies as st

from nfold.planning.reductions.reductions_without_servers import placed, reductions_of


def test_what_one_rank_owns_is_updated_there_in_one_bucket_and_never_sent():
    graph = chain(1 << 20, 1 << 20, 1 << 20)
    proposal = placed(facts(graph), {"A": (0, 0), "B": (0, 0), "C": (1, 1), "Loss": (1, 1)})
    found = [(each.parameters, each.members, each.route) for each in proposal.reductions]
    assert found == [(("c.weight",), (1,), "local"), (("b.weight", "a.weight"), (0,), "local")]


def test_a_tied_weight_is_summed_over_the_owners_of_all_its_users():
    graph = model({"A": ("input",), "B": ("a",), "Loss": ("b", "target")}, (parameter("tied", 4, "A", "B"),))
    (reduction,) = reductions_of(facts(graph, 3), place({"A": (0, 1), "B": (2, 2), "Loss": (2, 2)}, 3))
    assert (reduction.members, reduction.route) == ((0, 1, 2), "ring")


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_every_trained_parameter_lies_in_one_reduction_of_its_owners(data):
    graph = data.draw(graphs())
    world, chunks = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 4))
    ranks = st.integers(0, world - 1)
    proposal = placed(
        facts(graph, world), {each.name: tuple(data.draw(ranks) for _ in range(chunks)) for each in graph.operators}
    )
    inside = [name for each in proposal.reductions for name in each.parameters]
    assert sorted(inside) == sorted(each.name for each in graph.trained)
    users = {each.name: each.users for each in graph.parameters}
    for reduction in proposal.reductions:
        assert all(proposal.placement.ranks_of(users[name]) == reduction.members for name in reduction.parameters)
        assert reduction.route == ("ring" if len(reduction.members) > 1 else "local")
