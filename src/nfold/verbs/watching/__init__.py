"""What shows a run while it goes on: a page for people, figures for Prometheus, curves for TensorBoard."""
