"""What is said of old gradients."""

from dataclasses import replace

from nfold.view import why_text


def test_a_synchronous_run_says_nothing_of_staleness(single):
    assert "updates old" not in why_text(single)


def test_gains_of_an_asynchronous_run_are_in_steps_a_second(server):
    assert "What would win (simulated" in why_text(server)
    assert "What would win, in steps a second (simulated" in why_text(replace(server, staleness={"0": 1, "1": 3}))
    assert "What would win (simulated" in why_text(replace(server, staleness={"0": 4})), "no gradient was old"


def test_an_asynchronous_run_says_how_old_its_gradients_were(server):
    text = " ".join(why_text(replace(server, workers=3, staleness={"0": 25, "1": 50, "10": 25})).split())
    assert "Gradients were 3.0 updates old on average, 10 at most, where 3 updates make a step." in text
    assert "0: 25 %, 1: 50 %, 10: 25 %." in text
    assert "Judge an asynchronous run by the time to a loss, not by its step time." in text
