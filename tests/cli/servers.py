"""Servers for a shared level of the cache: nginx with WebDAV, and one that misbehaves as told."""

import contextlib
import getpass
import http.server
import pathlib
import shutil
import socket
import subprocess
import threading
import time

_CONFIG = """
user {2}; daemon off; pid {0}/pid; error_log {0}/error.log crit; worker_processes 2;
events {{}}
http {{
  access_log {0}/access.log; client_body_temp_path {0}/body; proxy_temp_path {0}/proxy; fastcgi_temp_path {0}/fastcgi;
  uwsgi_temp_path {0}/uwsgi; scgi_temp_path {0}/scgi; client_max_body_size 256m;
  {3}
  server {{ listen 127.0.0.1:{1} {4}; root {0}/data; location / {{ dav_methods PUT; create_full_put_path on; }} }}
}}
"""


def nginx_program() -> str | None:
    return shutil.which("nginx", path="/usr/sbin:/usr/local/sbin:/usr/bin")


def free_port() -> int:
    with contextlib.closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Nginx:
    """Serves `folder`/data."""

    def __init__(self, folder: pathlib.Path, tls: bool = False):
        self.folder, self.port, self._scheme = folder, free_port(), "https" if tls else "http"
        (folder / "data").mkdir(parents=True)
        if tls:
            subject = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
            subprocess.run(
                ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *subject,
                 "-keyout", folder / "key.pem", "-out", folder / "certificate.pem"], check=True, capture_output=True,
            )  # fmt: skip
        # With TLS, connections are closed after each answer.
        extra = f"ssl_certificate {folder}/certificate.pem; ssl_certificate_key {folder}/key.pem; keepalive_timeout 0;" if tls else ""
        (folder / "nginx.conf").write_text(_CONFIG.format(folder, self.port, getpass.getuser(), extra, "ssl" if tls else ""))
        program = nginx_program()
        assert program is not None
        self._process = subprocess.Popen([program, "-c", folder / "nginx.conf"], stderr=subprocess.DEVNULL)
        self._wait_until_it_listens()

    @property
    def url(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self.port}/kernels"

    def objects(self) -> list[pathlib.Path]:
        return sorted(path for path in (self.folder / "data").rglob("*") if path.is_file())

    def requests(self, method: str) -> int:
        return (self.folder / "access.log").read_text().count(f'"{method} ')

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait()

    def _wait_until_it_listens(self) -> None:
        for _ in range(100):
            with contextlib.closing(socket.socket()) as one:
                if one.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.05)
        raise RuntimeError("nginx does not listen")


class BadServer:
    """Answers every GET with `body` after `seconds`, and refuses nothing."""

    def __init__(self, body: bytes, status: int = 200, seconds: float = 0):
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                time.sleep(seconds)
                with contextlib.suppress(OSError):
                    self.send_response(status)
                    self.send_header("Content-Length", str(len(body)))
                    self.end_headers()
                    self.wfile.write(body)

            def do_PUT(self):
                time.sleep(seconds)
                with contextlib.suppress(OSError):
                    self.rfile.read(int(self.headers["Content-Length"]))
                    self.send_response(201)
                    self.send_header("Content-Length", "0")
                    self.end_headers()

            def log_message(self, *_):
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/kernels"

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
