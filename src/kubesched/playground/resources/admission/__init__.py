"""Admission of objects: looks up other objects, derives fields, rejects."""
