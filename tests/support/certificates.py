"""Certificates of TLS for tests."""

import shutil
import subprocess
from pathlib import Path

import pytest


def make_certificate(folder: Path, name: str) -> tuple[Path, Path]:
    """Makes a certificate that signs itself, for a name or address of a host."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is absent, which makes the certificate")
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
            *("-nodes", "-days", "2", "-subj", "/CN=tests", "-addext", f"subjectAltName={name}"),
            *("-keyout", str(key), "-out", str(certificate)),
        ],
        check=True,
        capture_output=True,
    )
    return certificate, key
