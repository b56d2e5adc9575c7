"""What planning starts from: the facts that strategies may know, and into how many chunks a batch may be cut."""
