"""The page: a cluster, its queue, every decision and a what-if editor, in the browser.

    source        what is shown: a running scheduler, a watched cluster, a dump, a recording
    columns       typed arrays with a JSON header, the transfer format
    nodes         the node table and devices as columns, changed rows, and one node in full
    pending       pending pods in queue order
    attempts      decisions from a scheduler's ring, a recording, or the pods' conditions
    decision      one pod's explanation with the whole matrix of nodes and plugins
    moments       states of a recording at points in time
    what_if       plans while the user types
    actions       actions on a playground
    updates       the event stream: changes since an event id
    routes        request paths and their handlers
    access        token, cookie, Host and Origin checks, security headers
    assets        static files, and the export as one HTML file
    serving       the page on its own socket

Interface: docs/design/0009-page.md. Static files are plain ES modules without a build step.
"""
