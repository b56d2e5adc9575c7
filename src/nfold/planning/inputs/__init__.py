"""What planning starts from: facts for strategies, how often a batch may be cut, operators that stay together.

How many samples each chunk has is decided in `core/chunks.py`.
"""
