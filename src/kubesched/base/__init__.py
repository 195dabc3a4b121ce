"""Foundation of all other packages: errors, clock, logs, metrics, charts, the HTTP server."""
