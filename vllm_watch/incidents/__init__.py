"""From verdicts to incidents, from first sign to end. Pure."""
