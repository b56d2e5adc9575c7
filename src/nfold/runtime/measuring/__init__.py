"""What is measured of machines and links, before a run and during it: who probes whom, and what that says."""
