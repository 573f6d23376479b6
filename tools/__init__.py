"""Scripts that write the documentation, the lock files and the zoo."""
