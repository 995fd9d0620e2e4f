"""The sections of the configuration: models with defaults, reasons and validation."""
