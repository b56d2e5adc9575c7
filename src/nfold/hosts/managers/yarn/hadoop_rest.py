"""Requests to Hadoop's web servers: a ResourceManager, a NodeManager, a NameNode."""

import http.client
import json
import re
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from typing import Any

from nfold.errors import ClusterError, one_line

_JSON = "application/json"
_MOST_S = 30.0
_UNAUTHORIZED = 401
_REDIRECTED = (307, 308)


class Refused(ClusterError):
    """A server answered, and said no.

    Attributes:
        status: of HTTP.
        said: its own words.
    """

    def __init__(self, message: str, status: int, said: str) -> None:
        super().__init__(message)
        self.status = status
        self.said = said


@dataclass(frozen=True, slots=True)
class HadoopRest:
    """One server."""

    base: str
    """As in `http://rm:8088`."""
    user: str
    """Who asks. Without Kerberos, Hadoop believes it."""
    title: str
    """What messages call the server."""

    def ask(self, method: str, path: str, body: object = None, **query: str) -> Any:
        """Return what the JSON of an answer says; {}: it has no text.

        Args:
            method: of HTTP.
            path: begins with a slash.
            body: that goes along as JSON.
            query: behind the path.

        Raises:
            Refused: the server said no.
            ClusterError: there is no such server, or it speaks something else.
        """
        data = None if body is None else json.dumps(body).encode()
        text = self.send(method, self.url(path, **query), data)
        try:
            return json.loads(text) if text.strip() else {}
        except json.JSONDecodeError as error:
            raise ClusterError(
                f"{self.title} at {self.base} answers {method} {path} with something that is not JSON: "
                f"{one_line(text)}. Is it {self.title}'s web address?"
            ) from error

    def read(self, path: str, **query: str) -> str:
        """Return the text of an answer; raises as `ask`."""
        return self.send("GET", self.url(path, **query), accept="text/plain")

    def url(self, path: str, **query: str) -> str:
        """Return the address of a path, with the name of who asks."""
        return f"{self.base}{path}?{urllib.parse.urlencode({'user.name': self.user, **query})}"

    def send(self, method: str, url: str, data: bytes | None = None, *, accept: str = _JSON, kind: str = _JSON) -> str:
        """Send one request and return the text of the answer; raises as `ask`.

        Args:
            method: of HTTP.
            url: whole.
            data: that goes along.
            accept: what kind of text the answer may be.
            kind: of the data.
        """
        headers = {"Accept": accept, "Content-Type": kind}
        request = urllib.request.Request(url, data=data, method=method, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=_MOST_S) as answer:
                return str(answer.read().decode(errors="replace"))
        except urllib.error.HTTPError as error:
            with error:
                raise self._refusal(method, error) from error
        except (OSError, http.client.HTTPException) as error:
            raise self._unreachable(error) from error

    def _refusal(self, method: str, error: urllib.error.HTTPError) -> Refused:
        said = words(error.read().decode(errors="replace")) or f"HTTP {error.code} {error.reason}"
        advice = ""
        if error.code == _UNAUTHORIZED:
            advice = ". It asks for Kerberos, which nfold does not speak: start agents by hand (--listen), or by ssh"
        if error.code in _REDIRECTED:
            advice = f". It stands by for another one: use {error.headers.get('Location', 'that')}"
        path = urllib.parse.urlsplit(error.url).path
        return Refused(f"{self.title} refuses {method} {path}: {said}{advice}", error.code, said)

    def _unreachable(self, error: Exception) -> ClusterError:
        cause = getattr(error, "reason", error)
        reason = getattr(cause, "strerror", None) or cause or type(error).__name__
        return ClusterError(
            f"{self.title} at {self.base} cannot be reached: {one_line(str(reason))}. Is that the address of its web "
            f"interface, and does a firewall stand between?"
        )


def words(text: str) -> str:
    """Return what Hadoop says in the text of a refusal: JSON of three kinds, or a page; empty: nothing."""
    try:
        answer = json.loads(text)
    except json.JSONDecodeError:
        title = re.search(r"<title>(.*?)</title>", text, re.DOTALL | re.IGNORECASE)
        return one_line(title.group(1)) if title else ""
    exception = answer.get("RemoteException", {}) if isinstance(answer, dict) else {}
    said = exception.get("message") or (answer.get("diagnostics") if isinstance(answer, dict) else None)
    return one_line(str(said or answer))
