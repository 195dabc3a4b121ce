"""Foundation of all other packages: errors, clock, logs, metrics, the HTTP server."""
