"""What verdicts mean over time: one problem is one incident, with its cause, its evidence and its end. Pure."""
