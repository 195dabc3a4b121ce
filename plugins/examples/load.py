"""The load of nodes, as Prometheus and as metrics.k8s.io tell it: a stand-in to try Trimaran with.

python load.py FILE PORT

The file has the mean and the deviation of nodes' load as parts of their capacity, and is read for
every request: {"node-0": {"cpu": [0.7, 0.1], "memory": [0.5, 0.02]}}
"""

from __future__ import annotations

import json
import re
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

CPU, MEMORY = 8, 32 * 2**30
"""Of a node of the playground."""
QUERY = re.compile(r"(avg|stddev)_over_time\(instance:node_(cpu|memory)\w*:ratio\[\d+[smhd]\]\)")


class Handler(BaseHTTPRequestHandler):
    """Answers both APIs from the file."""

    file: Path

    def load(self) -> dict[str, dict[str, list[float]]]:
        return json.loads(self.file.read_text())

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        if url.path == "/api/v1/query":
            self.answer_query(parse_qs(url.query))
        elif url.path == "/apis/metrics.k8s.io/v1beta1/nodes":
            self.answer_usage()
        else:
            self.answer(404, {"error": f"{url.path} is not served"})

    def do_POST(self) -> None:
        """Prometheus takes queries as forms, too."""
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.answer_query(parse_qs(body.decode()))

    def answer_query(self, form: dict[str, list[str]]) -> None:
        (query,), (time,) = form.get("query", [""]), form.get("time", ["0"])
        asked = QUERY.fullmatch(query)
        if asked is None:
            error = f"this stand-in cannot evaluate {query!r}"
            self.answer(400, {"status": "error", "errorType": "bad_data", "error": error})
            return
        which = 0 if asked[1] == "avg" else 1
        values = {node: told[asked[2]][which] for node, told in self.load().items()}
        result = [
            {"metric": {"instance": f"{node}:9100"}, "value": [float(time), str(value)]}
            for node, value in values.items()
        ]
        self.answer(200, {"status": "success", "data": {"resultType": "vector", "result": result}})

    def answer_usage(self) -> None:
        items = [
            {
                "metadata": {"name": node},
                "usage": {
                    "cpu": f"{int(told['cpu'][0] * CPU * 1000)}m",
                    "memory": f"{int(told['memory'][0] * MEMORY) // 1024}Ki",
                },
            }
            for node, told in self.load().items()
        ]
        kind = {"apiVersion": "metrics.k8s.io/v1beta1", "kind": "NodeMetricsList"}
        self.answer(200, {**kind, "items": items})

    def answer(self, status: int, body: object) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_args: object) -> None:
        """Nothing is logged."""


if __name__ == "__main__":
    Handler.file = Path(sys.argv[1])
    known = len(json.loads(Handler.file.read_text()))
    with ThreadingHTTPServer(("127.0.0.1", int(sys.argv[2])), Handler) as server:
        print(f"load of {known} nodes at http://127.0.0.1:{server.server_port}", flush=True)
        server.serve_forever()
