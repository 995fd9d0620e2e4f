"""The dashboards, one file per question, and what they share; dashboards/build.py writes them."""
