"""Graph to plan to execution: implementations, buffers, launches."""
