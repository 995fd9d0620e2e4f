"""Implementation of `replay --prometheus`: judge stored metrics."""
