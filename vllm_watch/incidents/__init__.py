"""From verdicts to incidents. Pure."""
