"""The run simulated again, as it was and with something changed: what-ifs, other plans, other machines."""
