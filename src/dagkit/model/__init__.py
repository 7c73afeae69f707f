"""Data and its validation: definitions, conditions, resources, messages and names."""
