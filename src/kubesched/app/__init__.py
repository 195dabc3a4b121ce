"""The one place that wires everything together."""
