"""The version of nfold."""

__version__ = "0.1.0"
