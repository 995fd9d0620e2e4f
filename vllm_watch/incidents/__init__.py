"""From verdicts to incidents: one problem is one incident, with its cause, evidence and end. Pure."""
