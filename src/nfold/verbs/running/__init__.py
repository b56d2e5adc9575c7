"""One run from a program to a folder, whole or a step at a time, and what is shown of it while it lasts.

run_job       plays the run: starts the session, forwards what happens, sums it up
job_session   makes the session: coordinator, ranks, and what hears them
job_recorder  takes in what happens, event by event, for the folder and the user
steps         the run in the hands of the user's loop; leaving ends it with a script that did not
run           the result of a run that ended well
kept_run      what is kept of one that ended early, and how it goes on
observer      who is shown what happens
"""
