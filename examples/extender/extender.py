"""An HTTP extender: keeps pods off nodes whose name ends in an odd digit, and prefers short names.

python examples/extender/extender.py 8888
kubesched up --config examples/extender/scheduler.yaml
"""

from __future__ import annotations

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def filter_nodes(arguments):
    names = arguments["NodeNames"]
    odd = {name for name in names if name[-1:] in "13579"}
    return {
        "NodeNames": [name for name in names if name not in odd],
        "FailedNodes": dict.fromkeys(sorted(odd), "the name of the node is odd"),
    }


def prioritize(arguments):
    return [{"Host": name, "Score": max(0, 10 - len(name))} for name in arguments["NodeNames"]]


VERBS = {"/filter": filter_nodes, "/prioritize": prioritize}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        arguments = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        verb = VERBS.get(self.path)
        body = json.dumps(verb(arguments) if verb else {}).encode()
        self.send_response(200 if verb else 404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        """Say nothing about ordinary requests."""


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
