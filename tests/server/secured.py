"""Certificates made on the spot, and `headway serve` spoken to over TLS."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest
from served import TIMEOUT_S, Served


class Certificate(NamedTuple):
    certificate: Path
    key: Path


def make_certificate(directory: Path, name: str = "localhost") -> Certificate:
    """A certificate that signs itself. By the command, which every Debian has beside Python's ssl:
    packages that make some are not built for every interpreter of the matrix."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("no openssl command to make a certificate with")
    made = Certificate(directory / f"{name}.pem", directory / f"{name}.key")
    kind = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2")
    files = ("-out", made.certificate, "-keyout", made.key)
    subject = ("-subj", f"/CN={name}", "-addext", f"subjectAltName=DNS:{name}")
    command = [openssl, "req", "-x509", *kind, *files, *subject]
    subprocess.run(command, check=True, capture_output=True, timeout=TIMEOUT_S)
    return made


class SecuredServer(Served):
    """`connect` shakes hands too. A missing close_notify is an error, as for careful clients."""

    def __init__(self, app: str, made: Certificate, *options: str) -> None:
        self.context = ssl.create_default_context(cafile=str(made.certificate))
        self.context.set_alpn_protocols(["http/1.1"])
        files = ("--tls-certificate", str(made.certificate), "--tls-key", str(made.key))
        super().__init__(app, *files, *options)

    def connect_plainly(self) -> socket.socket:
        return super().connect()

    def connect(self) -> ssl.SSLSocket:
        return self.secure(super().connect())

    def secure(
        self, connection: socket.socket, context: ssl.SSLContext | None = None
    ) -> ssl.SSLSocket:
        return (context or self.context).wrap_socket(
            connection, server_hostname="localhost", suppress_ragged_eofs=False
        )
