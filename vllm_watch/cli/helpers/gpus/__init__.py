"""Output of `gpus`, and reclaiming."""
