"""What a placement costs on given machines: seconds of tasks, of reading and of a step; bytes of memory."""
