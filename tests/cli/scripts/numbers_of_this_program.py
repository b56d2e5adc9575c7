"""Lies beside a program and is imported by it."""

import os

BATCH_SIZE = 16
EPOCHS = int(os.environ.get("EPOCHS", "4"))
HIDDEN = int(os.environ.get("HIDDEN", "16"))
