"""Starts ranks, on this machine or on an emulated cluster, and leaves none behind.

What a launcher must do stands in `launcher.py`; `verbs/ranks/starting.py` chooses one. Job systems and other hosts,
where agents start ranks, are in `hosts/managers`.
"""
