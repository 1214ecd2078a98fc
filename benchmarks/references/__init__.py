"""What the package is held against, each written in the plainest way that JAX offers."""
