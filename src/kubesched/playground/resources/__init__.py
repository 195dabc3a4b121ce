"""What is particular to each kind: defaults, admission, validation, and custom resources."""
