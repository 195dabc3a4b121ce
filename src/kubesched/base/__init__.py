"""What every other package stands on: errors, clock, logs, metrics, charts, the HTTP server."""
