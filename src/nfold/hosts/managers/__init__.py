"""What starts agents: a module, or some, for each way to come to hosts.

A new one keeps the contract of `hosts/manager.py`, is chosen in `verbs/ranks/find_manager.py`, and named in
`verbs/options/target.py`. `child_agents` is for ways whose starting process is a child of the command.
"""
