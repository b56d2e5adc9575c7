"""The job's token: one line of text that each of its processes knows, and that proves that it belongs to the job.

    0f3a..                      32 hexadecimal digits: connections are proven, what goes over them can be read
    tls:0f3a..:LS0tLS1C..       the same, with the certificate that the job's connections show, and its private key

Whoever knows the token is a member, so nothing is lost if it can show the certificate too. All of the text is secret:
it goes through the environment, a file or a pipe, and never stands on a command line. `token_proof.py` proves with all
of it, so that a proof belongs to one certificate.
"""

import base64
import binascii
import secrets
import subprocess

from nfold.errors import ClusterError

_ENCRYPTED = "tls:"
_CERTIFICATE, _END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
_OPENSSL_S = 30.0
_MAKE_CERTIFICATE = (
    *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-sha256"),
    *("-days", "3650", "-config", "/dev/stdin", "-keyout", "/dev/stdout", "-out", "/dev/stdout"),
)
_ABOUT = b"""
[req]
prompt = no
distinguished_name = name
x509_extensions = own
[name]
CN = nfold job
[own]
basicConstraints = critical,CA:TRUE
"""


def new_token(*, encrypted: bool) -> str:
    """Return a token that no other job has.

    Args:
        encrypted: whether the job's connections are. Then a certificate is made, in a few hundredths of a second.

    Raises:
        ClusterError: the openssl program, which makes certificates, is missing or fails.
    """
    digits = secrets.token_hex(16)
    if not encrypted:
        return digits
    return f"{_ENCRYPTED}{digits}:{base64.urlsafe_b64encode(_made_certificate()).decode()}"


def key_and_certificate(token: str) -> tuple[str, str] | None:
    """Return the private key and the certificate of a token, both as PEM; None: connections are not encrypted.

    Raises:
        ClusterError: the token is cut off or garbled.
    """
    if not token.startswith(_ENCRYPTED):
        return None
    try:
        text = base64.b64decode(token.rpartition(":")[2], altchars=b"-_", validate=True).decode("ascii")
    except (binascii.Error, UnicodeError) as error:
        raise _garbled() from error
    key, mark, certificate = text.partition(_CERTIFICATE)
    if not (key and certificate.rstrip().endswith(_END)):
        raise _garbled()
    return key, mark + certificate


def tell_encryption(*, encrypted: bool) -> str:
    """Say whether others can read what goes over a job's connections: for the first lines of a run."""
    if encrypted:
        return "note: traffic between processes is encrypted (TLS 1.3, with a certificate of this job alone)"
    return (
        "note: traffic between processes is not encrypted: whoever sees the network can read weights and data. "
        "--tls encrypts it."
    )


def _made_certificate() -> bytes:
    """Return a new private key and its certificate."""
    try:
        made = subprocess.run(_MAKE_CERTIFICATE, input=_ABOUT, capture_output=True, timeout=_OPENSSL_S, check=False)
    except FileNotFoundError as error:
        raise ClusterError(
            "--tls needs the openssl program, which makes the job's certificate, and there is none on this machine. "
            "Install it (the package is called openssl), or leave out --tls on a network that you trust."
        ) from error
    except subprocess.TimeoutExpired as error:
        raise ClusterError(f"openssl took longer than {_OPENSSL_S:g} s to make the job's certificate.") from error
    if made.returncode or _CERTIFICATE.encode() not in made.stdout:
        said = " ".join(made.stderr.decode(errors="replace").split())
        raise ClusterError(f"openssl could not make the job's certificate (exit code {made.returncode}): {said}")
    return made.stdout


def _garbled() -> ClusterError:
    return ClusterError("the job's token is cut off or garbled: copy it again, as one whole line")
