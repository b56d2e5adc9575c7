"""What people write and read: amounts with units, durations, whole numbers, cluster files."""
