"""HTTP/1.1 server shared by the scheduler's serving port, the embedded API server and test servers.

    listener       accepts connections, runs TLS handshakes, enforces limits, shuts down
    accept_queue   accepted sockets waiting for their handshake, fair across client addresses
    connection     one connection: pipelining, keep-alive, timeouts
    exchange       one request and the state of its response
    sender         responses and streams out, with back pressure
    parser         requests from bytes (llhttp, through httptools), strict and bounded
    writer         response heads and chunks as bytes
    messages       Request, Response, Headers, and the Application protocol that answers requests
    event_stream   server-sent events
    limits         every bound, with its default

The package is independent of Kubernetes. An `Application` decides from the head of a request
whether to accept its body, so an unauthenticated client cannot make the server buffer a body.
"""
