"""Hosts that are not this one: agents on them start ranks, and managers start the agents.

command                                            host
manager ── ssh, a job system, a person ──────────> agent        imports nothing heavy, dials out
agent_pool <─────── control connection ─────────── agent        shows the token, tells what it has
agent_launcher ─── program, start, release, stop > agent ─────> ranks, which dial the coordinator themselves
"""
