"""The doors of the stack, its HTTP API and the address of a function, as a caller on the internet meets them."""

import http.client
import json
import urllib.parse

import botocore.auth
import botocore.awsrequest
import botocore.credentials


class Answer:
    def __init__(self, status, headers, content):
        self.status = status
        self.headers = headers
        self.content = content

    @property
    def json(self):
        return json.loads(self.content)

    def __str__(self):
        return f"{self.status} {self.content.decode(errors='replace')[:600]}"


class Door:
    def __init__(self, url, port):
        self.host = urllib.parse.urlsplit(url).netloc
        self.port = port

    def post(self, path, body, *, headers=None):
        return self._send("POST", path, json.dumps(body).encode(), headers or {})

    def get(self, path, *, headers=None):
        return self._send("GET", path, b"", headers or {})

    def post_signed(self, path, body, keys, region):
        """Posts as whoever has `keys`, which are access key, secret and, of a role, the token of its session."""
        url = f"https://{self.host}{path.removeprefix(f'http://{self.host}')}"
        headers = {"content-type": "application/json", "host": self.host}
        request = botocore.awsrequest.AWSRequest("POST", url, headers=headers, data=json.dumps(body).encode())
        signer = botocore.auth.SigV4Auth(botocore.credentials.Credentials(*keys), "execute-api", region)
        signer.add_auth(request)
        return self.post(path, body, headers={name.lower(): value for name, value in request.headers.items()})

    def _send(self, method, path, body, headers):
        path = path.removeprefix(f"http://{self.host}")
        headers = {"content-type": "application/json"} | headers | {"host": self.host}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, path, body=body, headers=headers)
            answer = connection.getresponse()
            return Answer(answer.status, answer.headers, answer.read())
        finally:
            connection.close()
