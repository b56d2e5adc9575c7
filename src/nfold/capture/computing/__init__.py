"""What makes computing repeatable and comparable: random draws, batch norm chunk by chunk, types, comparison."""
