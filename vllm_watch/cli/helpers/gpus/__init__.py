"""What `gpus` prints, and how it reclaims."""
