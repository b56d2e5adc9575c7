"""What runs on a host: tells what it has, holds the program, starts ranks and ends them."""
