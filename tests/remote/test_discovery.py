"""The endpoint of a service that is named by its host alone."""

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from robustassay.remote.adapter import Adapter
from robustassay.remote.discovery import find_endpoint


@pytest.fixture(params=[{"name": "assay", "models": ["my model"]}, {"name": "triton"}, None])
def host(request):
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200 if self.path == "/v2" and request.param is not None else 404)
            self.end_headers()
            self.wfile.write(json.dumps(request.param).encode())

        def log_message(self, *arguments):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}", request.param
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_host_is_asked_for_its_models(host):
    address, about = host
    model = about is not None and "models" in about
    assert find_endpoint(f"{address}/") == address + ("/v2/models/my%20model" if model else "/classify")
    assert Adapter.of(address).body == ("oip" if model else "raw")


def test_a_path_is_not_asked_about():
    assert find_endpoint("http://127.0.0.1:9/predict") == "http://127.0.0.1:9/predict"
