"""The sections of the configuration, with defaults, reasons and validation."""
