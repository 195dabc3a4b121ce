"""The page: a cluster, its queue, every decision and a what-if, in the browser.

    source        what is looked at: a running scheduler, a watched cluster, a dump, a recording
    columns       typed arrays with a JSON header: how columns travel to the browser
    nodes         the node table as columns, changed rows, and one node in full
    devices       devices per node and driver
    pending       the pods that wait, in queue order
    attempts      decisions: from the ring of a scheduler, a recording, or the pods' conditions
    decision      one pod's explanation with the whole matrix of nodes and plugins
    moments       states of a recording at points in time
    what_if       a plan while the user types
    actions       what can be done to a playground
    updates       the event stream: what changed since an event id
    routes        paths into answers
    access        token, cookie, Host and Origin checks, security headers
    assets        static files, and the export as one HTML file
    serving       all of it on a socket of its own

Interface: docs/design/0009-page.md. Static files are plain ES modules without a build step.
"""
