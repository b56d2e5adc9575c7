"""This machine as the kernel tells of it: cores and memory that a process may use, and counters while it works.

limits            cores and memory that this process may use
memory_check      refuses processes for which there is no memory
system_sampler    reads the kernel's counters each second; kernel_counters makes a sample of them
resident_memory, heap    what the process holds; what the allocator keeps
processes         which process is meant
user_folders      where a user's programs keep their files
"""
