"""A shared level of the cache on real servers: what it spares, and that it never costs a result."""

import concurrent.futures
import pathlib
import shutil
import time
import unittest

from command import CommandTest, compilable_targets
from servers import BadServer, Nginx, free_port, nginx_program

_TARGET = compilable_targets()[-1]
_PASSWORD = "hunter2"


class RemoteTest(CommandTest):
    def setUp(self):
        super().setUp()
        self.make("random", "--size", 4, "--density", 0.5, "--seed", 1)
        self.keys = self.folder.parent / "keys"
        self.keys.mkdir()
        self.succeed("cache", "key", self.keys / "builder")
        self.succeed("cache", "key", self.keys / "stranger")

    def compile(self, name: str, url: str | None, key: str = "builder", batch: int = 8, **environment: str) -> tuple[dict, dict]:
        """Compiles with an empty store: the answer, and the code by the files' names."""
        answer = self.answer(
            "compile", "L.npy", "--block", 16, "--batch", batch, "--target", _TARGET, "-o", name,
            SPARSEKILN_CACHE_DIR=str(self.folder.parent / f"cache-{name}"), SPARSEKILN_REMOTE=url,
            SPARSEKILN_REMOTE_KEY=str(self.keys / key) if key else None, **environment,
        )  # fmt: skip
        code = {path.name: path.read_bytes() for path in (self.folder / name).iterdir() if path.suffix in (".cubin", ".o")}
        self.assertTrue(code)
        return answer, code

    def start(self, server):
        self.addCleanup(server.stop)
        return server

    def nginx(self) -> Nginx:
        if nginx_program() is None:
            self.skipTest("there is no nginx")
        return self.start(Nginx(self.folder.parent / "nginx"))

    def test_eight_processes_with_empty_stores_compile_nothing_where_the_server_is_warm(self):
        server = self.nginx()
        made, code = self.compile("first", server.url)
        self.assertEqual(made["from"], "compiled")
        self.assertEqual(len(server.objects()), 1)
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda i: self.compile(f"p{i}", server.url, "builder.pub"), range(8)))
        self.assertEqual([answer["from"] for answer, _ in answers], ["store"] * 8)
        self.assertTrue(all(other == code for _, other in answers))

    def test_what_a_server_has_is_believed_only_if_it_is_signed_and_whole(self):
        server = self.nginx()
        _, code = self.compile("first", server.url)
        (stored,) = server.objects()
        good = stored.read_bytes()
        _, strange = self.compile("strange", server.url, "stranger")
        self.assertEqual(strange, code)
        bodies = {
            "garbage": b"<html>please log in</html>", "empty": b"", "cut": good[: len(good) // 2],
            "unsigned": good[:8] + bytes(73) + good[81:], "later": good[:8] + b"\2" + good[9:],
        }  # fmt: skip
        for at in (3, 12, 20, 80, 90, len(good) // 2, len(good) - 1):
            bodies[f"flipped-{at}"] = good[:at] + bytes([good[at] ^ 4]) + good[at + 1 :]
        for name, body in bodies.items():
            with self.subTest(name):
                bad = self.start(BadServer(body))
                answer, other = self.compile(name, bad.url, "builder.pub")
                self.assertEqual(answer["from"], "compiled")
                self.assertEqual(other, code)
        right, other = self.compile("right", self.start(BadServer(good)).url, "builder.pub")
        self.assertEqual((right["from"], other), ("store", code))
        wrong, other = self.compile("wrong", self.start(BadServer(good)).url, "stranger.pub")
        self.assertEqual((wrong["from"], other), ("compiled", code))
        of_another, _ = self.compile("of_another", self.start(BadServer(good)).url, "builder.pub", batch=64)
        self.assertEqual(of_another["from"], "compiled")

    def test_a_server_that_is_gone_slow_or_broken_costs_no_result_and_little_time(self):
        _, code = self.compile("alone", None)
        slow = self.start(BadServer(b"late", seconds=5))
        broken = self.start(BadServer(b"", status=500))
        for name, url in {
            "gone": f"http://127.0.0.1:{free_port()}/kernels", "slow": slow.url, "broken": broken.url,
            "nowhere": "http://host.invalid/kernels", "nonsense": "ftp://host/kernels",
        }.items():  # fmt: skip
            with self.subTest(name):
                took = []
                for which in (None, url):  # in turn, so that both meet the same machine
                    begin = time.monotonic()
                    answer, other = self.compile(f"{name}-{which is None}", which)
                    took.append(time.monotonic() - begin)
                    self.assertEqual((answer["from"], other), ("compiled", code))
                self.assertLess(took[1], took[0] + 1.5)  # 0.7 s, and what a busy machine adds

    def test_a_server_with_tls_that_closes_connections_gets_what_was_compiled(self):
        if nginx_program() is None or shutil.which("openssl") is None:
            self.skipTest("there is no nginx, or no openssl to make a certificate")
        server = self.start(Nginx(self.folder.parent / "nginx", tls=True))
        trusted = {"SPARSEKILN_REMOTE_CA": str(server.folder / "certificate.pem")}
        for round in range(3):  # a process that ended while it sends would crash, not each time
            made, code = self.compile(f"made-{round}", server.url, batch=8 + round, **trusted)
            self.assertEqual(made["from"], "compiled")
            found, other = self.compile(f"found-{round}", server.url, "builder.pub", batch=8 + round, **trusted)
            self.assertEqual((found["from"], other), ("store", code))
        strange, _ = self.compile("strange", server.url, batch=100)  # its certificate is not trusted
        self.assertEqual(strange["from"], "compiled")

    def test_without_keys_nothing_is_asked_and_doctor_says_why(self):
        server = self.nginx()
        answer, _ = self.compile("first", server.url, key="")
        self.assertEqual(answer["from"], "compiled")
        self.assertEqual(server.requests("GET") + server.requests("PUT"), 0)
        said = self.answer("doctor", SPARSEKILN_REMOTE=server.url, SPARSEKILN_REMOTE_KEY=None)["shared_cache"]
        self.assertFalse(said["usable"])
        self.assertIn("SPARSEKILN_REMOTE_KEY", said["why"])

    def test_no_secret_is_shown(self):
        server = self.nginx()
        url = server.url.replace("http://", f"http://me:{_PASSWORD}@")
        gone = f"http://me:{_PASSWORD}@127.0.0.1:{free_port()}/x"
        secret = pathlib.Path(self.keys / "builder").read_text().split()[1]
        for number, target in enumerate((url, gone, gone + f"?token={_PASSWORD}", f"http://me:{_PASSWORD}/{_PASSWORD}@host/")):
            for command in (
                ["doctor"], ["doctor", "--json"], ["cache", "stats"],
                ["compile", "L.npy", "--block", 16, "--batch", 8, "--target", _TARGET],
            ):  # fmt: skip
                shown = self.run_tool(
                    *command, SPARSEKILN_REMOTE=target, SPARSEKILN_REMOTE_KEY=str(self.keys / "builder"),
                    SPARSEKILN_CACHE_DIR=str(self.folder.parent / f"store-{number}"),
                )  # fmt: skip
                self.assertNotIn(_PASSWORD, shown.out + shown.err)
                self.assertNotIn(secret, shown.out + shown.err)
        said = self.answer("doctor", SPARSEKILN_REMOTE=url, SPARSEKILN_REMOTE_KEY=str(self.keys / "builder"))["shared_cache"]
        self.assertEqual((said["usable"], said["place"], said["sends"]), (True, server.url, True))

    def test_a_key_is_made_once_and_is_private(self):
        file = self.keys / "builder"
        self.assertEqual(file.stat().st_mode & 0o777, 0o600)
        self.assertEqual(self.run_tool("cache", "key", file).status, 1)


if __name__ == "__main__":
    unittest.main()
