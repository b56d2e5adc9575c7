"""A job's ranks as processes, threads or on emulated nodes: how they start, and what joins the layers in each."""
