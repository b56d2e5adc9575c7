"""The life of a rank's process: it does what the coordinator says, evaluates, reports, and is seen to be alive."""
