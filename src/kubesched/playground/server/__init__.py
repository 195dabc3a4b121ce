"""The API server: requests to handlers, over HTTP and TLS (`web`) or in process (`memory_transport`)."""
