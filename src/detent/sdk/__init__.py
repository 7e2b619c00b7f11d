"""What users import: the app, and its test mode."""
