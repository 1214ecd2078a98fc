"""Other systems on the same work; those of torch run in an environment of their own."""
