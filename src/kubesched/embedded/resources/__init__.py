"""What the server knows about each resource: catalogue, strategies, admission, defaults, validation, schema."""
