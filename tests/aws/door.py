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
    def __init__(self, url, port, region):
        self.host = urllib.parse.urlsplit(url).netloc
        self.port = port
        self.region = region

    def post(self, path, body, *, signed=False, headers=None):
        return self._send("POST", path, json.dumps(body).encode(), signed, headers or {})

    def get(self, path, *, headers=None):
        return self._send("GET", path, b"", False, headers or {})

    def _send(self, method, path, body, signed, headers):
        path = path.removeprefix(f"http://{self.host}")
        request = botocore.awsrequest.AWSRequest(method, f"http://{self.host}{path}", data=body)
        request.headers["content-type"] = "application/json"
        for name, value in headers.items():
            request.headers[name] = value
        if signed:
            keys = botocore.credentials.Credentials("test", "test")
            botocore.auth.SigV4Auth(keys, "execute-api", self.region).add_auth(request)
        request.headers["host"] = self.host
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, path, body=body, headers=dict(request.headers.items()))
            answer = connection.getresponse()
            return Answer(answer.status, answer.headers, answer.read())
        finally:
            connection.close()
