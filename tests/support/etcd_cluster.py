# SPDX-License-Identifier: BSD-3-Clause
"""A real etcd of several members on this machine, each of which can be killed, frozen and started again."""

import json
import pathlib
import shutil
import signal
import ssl
import subprocess
import time
import urllib.error
import urllib.request

from free_port import free_port

LIMIT = 60  # seconds of every wait


def why_not():
    """Why there can be no etcd here; empty where there can."""
    return "" if shutil.which("etcd") else "etcd is not installed (Debian's etcd-server)"


class Certificates:
    """An authority, and what it has signed: one certificate for the members and one for clients."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.ca = self.folder / "ca.pem"
        self._make_ca()
        self.member = self._make("member", "subjectAltName=IP:127.0.0.1,DNS:localhost")
        self.client = self._make("client", "subjectAltName=DNS:client")

    def _openssl(self, *arguments):
        subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True, timeout=LIMIT)

    def _make_ca(self):
        self._openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", 2,
                      "-subj", "/CN=authority", "-keyout", self.folder / "ca.key", "-out", self.ca)

    def _make(self, name, extension):
        key, request, certificate = (self.folder / f"{name}.{end}" for end in ("key", "csr", "pem"))
        extensions = self.folder / f"{name}.ext"
        extensions.write_text(extension + "\n")
        # Without a CommonName: where etcd has users, its gateway refuses clients whose certificate has one.
        self._openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                      "-subj", f"/O={name}", "-keyout", key, "-out", request)
        self._openssl("x509", "-req", "-in", request, "-CA", self.ca, "-CAkey", self.folder / "ca.key",
                      "-CAcreateserial", "-days", 2, "-extfile", extensions, "-out", certificate)
        return certificate, key


class EtcdCluster:
    def __init__(self, folder, count=3, certificates=None):
        self.folder = pathlib.Path(folder)
        self.certificates = certificates
        self.scheme = "https" if certificates else "http"
        self.ports = [free_port() for _ in range(count)]
        self.peer_ports = [free_port() for _ in range(count)]
        self.processes = [None] * count
        self.token = None
        for number in range(count):
            self.start(number)
        self.until_healthy()

    def close(self):
        for number in range(len(self.processes)):
            self.kill(number)

    @property
    def endpoints(self):
        return ",".join(f"127.0.0.1:{port}" for port in self.ports)

    def start(self, number):
        """Begins, or goes on with what it has on its disk."""
        peers = ",".join(f"m{k}=http://127.0.0.1:{port}" for k, port in enumerate(self.peer_ports))
        client = f"{self.scheme}://127.0.0.1:{self.ports[number]}"
        peer = f"http://127.0.0.1:{self.peer_ports[number]}"
        command = ["etcd", "--name", f"m{number}", "--data-dir", str(self.folder / f"m{number}"),
                   "--listen-client-urls", client, "--advertise-client-urls", client,
                   "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
                   "--initial-cluster", peers, "--initial-cluster-state", "new", "--log-level", "error"]
        if self.certificates:
            certificate, key = self.certificates.member
            command += ["--cert-file", str(certificate), "--key-file", str(key),
                        "--trusted-ca-file", str(self.certificates.ca), "--client-cert-auth"]
        with open(self.folder / f"m{number}.log", "ab") as log:
            self.processes[number] = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def kill(self, number):
        process, self.processes[number] = self.processes[number], None
        if process:
            process.kill()
            process.wait()

    def freeze(self, number):
        self.processes[number].send_signal(signal.SIGSTOP)

    def thaw(self, number):
        self.processes[number].send_signal(signal.SIGCONT)

    def call(self, number, path, body, timeout=5):
        """What a member answers; raises OSError where it does not, or refuses."""
        url = f"{self.scheme}://127.0.0.1:{self.ports[number]}{path}"
        headers = {"Authorization": self.token} if self.token else {}
        request = urllib.request.Request(url, json.dumps(body).encode(), headers)
        context = None
        if self.certificates:
            context = ssl.create_default_context(cafile=str(self.certificates.ca))
            context.load_cert_chain(*map(str, self.certificates.client))
        with urllib.request.urlopen(request, timeout=timeout, context=context) as response:
            return json.loads(response.read())

    def leader(self):
        """The number of the member that leads; None while there is none."""
        for number, process in enumerate(self.processes):
            if process is None:
                continue
            try:
                status = self.call(number, "/v3/maintenance/status", {})
            except (OSError, ValueError):
                continue
            if status.get("leader", "0") == status["header"]["member_id"]:
                return number
        return None

    def until_healthy(self):
        """Waits until a leader is there and each member that runs can read."""
        deadline = time.monotonic() + LIMIT
        while not self._is_healthy():
            if time.monotonic() > deadline:
                logs = "\n".join(path.read_text(errors="replace")[-2000:] for path in self.folder.glob("m*.log"))
                raise AssertionError(f"etcd was not there after {LIMIT} s:\n{logs}")
            time.sleep(0.05)

    def _is_healthy(self):
        if self.leader() is None:
            return False
        try:
            for number, process in enumerate(self.processes):
                if process is not None:
                    self.call(number, "/v3/kv/range", {"key": "AA=="})
        except (OSError, ValueError):
            return False
        return True

    def require_users(self, password):
        """From now on etcd asks for a user; root has this password."""
        self.call(0, "/v3/auth/user/add", {"name": "root", "password": password})
        self.call(0, "/v3/auth/role/add", {"name": "root"})
        self.call(0, "/v3/auth/user/grant", {"user": "root", "role": "root"})
        self.call(0, "/v3/auth/enable", {})
        self.token = self.call(0, "/v3/auth/authenticate", {"name": "root", "password": password})["token"]
