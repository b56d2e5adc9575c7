"""One compute thread per rank: ranks that are threads would otherwise fight over the cores."""

import torch

torch.set_num_threads(1)
