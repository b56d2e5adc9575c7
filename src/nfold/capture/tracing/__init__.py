"""Program -> graph, by torch.fx or torch.export; and what each node does, and which sizes it needs."""
