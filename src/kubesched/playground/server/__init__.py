"""The API server: over HTTP and TLS (`web`), or in process (`memory_transport`)."""
