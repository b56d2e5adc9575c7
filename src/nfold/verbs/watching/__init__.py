"""What a run gives to other programs while it goes on: figures to Prometheus, curves to TensorBoard."""
