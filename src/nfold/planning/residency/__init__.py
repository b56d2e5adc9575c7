"""Where training samples should live: what moves between nodes, who trains on what, and who sends no gradients."""
