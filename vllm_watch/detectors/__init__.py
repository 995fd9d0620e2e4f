"""What is wrong with an engine, one phenomenon per file. Pure: no I/O, no clock; time comes in with the data."""
