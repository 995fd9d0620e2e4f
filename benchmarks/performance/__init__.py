"""What watching costs: each file measures one subject and gives rows of one table."""
